//! Plays a plan: every tensor is born where the plan says and moves when the plan says.
//!
//! Objects are known by their names, which are the tensors' names in the trace that the plan is for. What the plan could
//! not foresee (memory in pieces where it counted bytes, another trace) never makes a result wrong: an object that does
//! not fit where it should goes to the next slower tier that has room, what a kernel needs elsewhere is fetched, and
//! [`Follow::deviations`] counts how often. One that is [`Follow::adapting`] also learns from what comes late.

use std::cell::RefCell;
use std::collections::HashMap;

use tiercel_core::{
    Bytes, Error, Hint, Machine, Manager, Nanos, ObjectId, Operand, Place, Policy, RegionId, Step, TierId,
};
use tiercel_plan::{Action, Flaw, Plan, leeway, verify};
use tiercel_workload::Trace;
use tiercel_workload::trace::Role;

use crate::adapt::Adaptation;
use crate::gather::gather;
use crate::recency::Recency;

/// One move of the plan, ready to be made.
#[derive(Clone, Debug)]
struct Order {
    /// Which of the plan's moves it is; none of something that is put right.
    index: Option<usize>,
    tensor: String,
    action: Action,
    to: TierId,
    offset: Option<u64>,
    waits: bool,
}

/// Plays a plan.
#[derive(Clone, Debug)]
pub struct Follow {
    births: HashMap<String, (TierId, Option<u64>)>,
    /// Tensors that are there before the first kernel.
    given: std::collections::HashSet<String>,
    /// For each boundary, what leaves for slower tiers, and what comes to faster ones.
    leaving: Vec<Vec<Order>>,
    coming: Vec<Vec<Order>>,
    objects: HashMap<String, ObjectId>,
    /// The boundary that is next, and how many boundaries' leavers have left.
    boundary: usize,
    left: usize,
    deviations: u64,
    recency: RefCell<Recency>,
    /// What is learned of late moves, where that is wanted; the move that each object is on, and those that the next kernel
    /// waits for, with the time waited before it.
    adaptation: Option<Adaptation>,
    bringing: HashMap<ObjectId, usize>,
    awaited: (Vec<usize>, Nanos),
}

impl Follow {
    /// A policy that plays a plan, if the plan can be played.
    pub fn new(plan: &Plan, trace: &Trace, machine: &Machine) -> Result<Follow, Flaw> {
        verify(plan, trace, machine)?;
        let tier = |name: &str| machine.tier_named(name).expect("the plan has been verified");
        let mut leaving = vec![Vec::new(); trace.kernels.len() + 1];
        let mut coming = leaving.clone();
        for (index, m) in plan.moves.iter().enumerate() {
            let (from, to) = (tier(&m.from), tier(&m.to));
            let waits = !plan.asynchronous && m.start == m.done;
            let (tensor, index) = (m.tensor.clone(), Some(index));
            let order = Order { index, tensor, action: m.action, to, offset: m.offset, waits };
            let side = if to > from { &mut leaving } else { &mut coming };
            side[m.start as usize].push(order);
        }
        let given = trace.tensors.iter().filter(|t| t.persistent || t.role == Role::Input);
        Ok(Follow {
            births: plan.births.iter().map(|b| (b.tensor.clone(), (tier(&b.tier), b.offset))).collect(),
            given: given.map(|t| t.name.clone()).collect(),
            leaving,
            coming,
            objects: HashMap::new(),
            boundary: 0,
            left: 0,
            deviations: 0,
            recency: RefCell::default(),
            adaptation: None,
            bringing: HashMap::new(),
            awaited: (Vec::new(), Nanos::ZERO),
        })
    }

    /// The same, and moves to faster tiers that come late begin earlier in later iterations, where their places are free.
    pub fn adapting(mut self, plan: &Plan, trace: &Trace, machine: &Machine) -> Result<Follow, Flaw> {
        let starts = plan.moves.iter().map(|m| m.start).collect();
        self.adaptation = Some(Adaptation::new(starts, leeway(plan, trace, machine)?, self.coming.len()));
        Ok(self)
    }

    /// Lets what comes come when it now should.
    fn reschedule(&mut self) {
        let Some(adaptation) = &self.adaptation else { return };
        let mut orders: Vec<Order> = self.coming.iter_mut().flat_map(std::mem::take).collect();
        orders.sort_by_key(|order| order.index);
        for order in orders {
            let start = order.index.map_or(0, |index| adaptation.starts()[index]);
            self.coming[start as usize].push(order);
        }
    }

    /// How often something could not be done as planned.
    pub fn deviations(&self) -> u64 {
        self.deviations
    }

    /// Sends away what leaves at this boundary, once.
    fn leave(&mut self, m: &mut Manager) -> Result<(), Error> {
        if self.left <= self.boundary && self.boundary < self.leaving.len() {
            self.left = self.boundary + 1;
            let orders = std::mem::take(&mut self.leaving[self.boundary]);
            let result = orders.iter().try_for_each(|order| self.make(m, order));
            self.leaving[self.boundary] = orders;
            result?;
        }
        Ok(())
    }

    /// Brings what comes at this boundary.
    fn come(&mut self, m: &mut Manager) -> Result<(), Error> {
        let orders = std::mem::take(&mut self.coming[self.boundary]);
        let result = orders.iter().try_for_each(|order| self.make(m, order));
        self.coming[self.boundary] = orders;
        result
    }

    /// Makes one move.
    fn make(&mut self, m: &mut Manager, order: &Order) -> Result<(), Error> {
        let object = self.objects.get(&order.tensor).copied().filter(|object| m.contains(*object));
        let Some((object, x)) = object.and_then(|object| m.primary(object).map(|x| (object, x))) else {
            self.deviations += 1;
            return Ok(());
        };
        if order.action == Action::Forget {
            if let Some(copy) = m.region_on(object, order.to).filter(|copy| *copy != x) {
                m.free(copy)?;
            }
            return Ok(());
        }
        if m.tier(x) == order.to {
            self.deviations += 1;
            return Ok(());
        }
        let y = match m.linked(x, order.to) {
            Some(y) => y,
            None => {
                let size = m.size_of(x);
                match self.allocate(m, order.to, order.offset, size) {
                    Some(y) => y,
                    None => {
                        self.deviations += 1;
                        return Ok(());
                    }
                }
            }
        };
        if m.is_written(object) && !m.is_current(y) {
            m.copy(x, y)?;
        }
        m.set_primary(object, y)?;
        if let (Some(_), Some(index)) = (&self.adaptation, order.index) {
            self.bringing.insert(object, index);
        }
        if order.action != Action::Fetch {
            m.free(x)?;
        }
        if order.waits { m.wait_for(Step(self.boundary as u32), object) } else { Ok(()) }
    }
}

impl Follow {
    /// Memory at the place that the plan says, or elsewhere on that tier.
    fn allocate(
        &mut self,
        m: &mut Manager,
        tier: TierId,
        offset: Option<u64>,
        size: Bytes,
    ) -> Option<RegionId> {
        if let Some(offset) = offset {
            if let Ok(region) = m.allocate_at(Place { tier, offset: Bytes(offset) }, size) {
                return Some(region);
            }
            self.deviations += 1;
        }
        m.allocate(tier, size).ok()
    }
}

impl Policy for Follow {
    fn name(&self) -> &str {
        "follow"
    }

    fn place(&mut self, m: &mut Manager, object: ObjectId) -> Result<(), Error> {
        let name = m.what(object);
        if !self.given.contains(&name) {
            self.leave(m)?;
        }
        let ((planned, offset), size) =
            (self.births.get(&name).copied().unwrap_or_default(), m.size(object)?);
        self.objects.insert(name, object);
        let tiers: Vec<TierId> = m.machine().tier_ids().collect();
        // As planned; else slower, the nearest first; else faster.
        let (faster, slower) = tiers.split_at(planned.index());
        for &tier in slower.iter().chain(faster.iter().rev()) {
            let offset = offset.filter(|_| tier == planned);
            if let Some(region) = self.allocate(m, tier, offset, size) {
                self.deviations += u64::from(tier != planned);
                return m.set_primary(object, region);
            }
        }
        Err(m.no_room(object, planned))
    }

    fn hint(&mut self, m: &mut Manager, object: ObjectId, hint: Hint) -> Result<(), Error> {
        if hint == Hint::Retire && m.contains(object) {
            self.recency.get_mut().remove(object);
            m.retire(object)?;
        }
        Ok(())
    }

    fn before(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        if step != Step::LOAD && (step.0 as usize) < self.leaving.len() {
            self.boundary = step.0 as usize;
            if let Some(adaptation) = &mut self.adaptation {
                adaptation.reach(self.boundary, m.now());
            }
            self.leave(m)?;
            self.come(m)?;
        }
        for operand in operands {
            if let Some(home) = m.home(operand.object) {
                self.recency.get_mut().touch(operand.object, home);
            }
        }
        gather(m, &self.recency, step, operands)?;
        if self.adaptation.is_some() {
            let arriving = operands.iter().filter(|operand| m.is_arriving(operand.object));
            let brought = arriving.filter_map(|operand| self.bringing.get(&operand.object).copied());
            self.awaited.0.clear();
            self.awaited.0.extend(brought);
            self.awaited.1 = m.totals().stall;
        }
        Ok(())
    }

    fn after(&mut self, m: &mut Manager, step: Step, operands: &[Operand]) -> Result<(), Error> {
        if step == Step::LOAD {
            // What was fetched to be filled goes to where it should be.
            for operand in operands {
                let tensor = m.what(operand.object);
                let (planned, offset) = self.births.get(&tensor).copied().unwrap_or_default();
                let order =
                    Order { index: None, tensor, action: Action::Move, to: planned, offset, waits: false };
                if m.home(operand.object).is_some_and(|home| home != planned) {
                    self.make(m, &order)?;
                }
            }
            return Ok(());
        }
        if let Some(adaptation) = &mut self.adaptation {
            let waited = m.totals().stall.saturating_sub(self.awaited.1);
            self.awaited.0.drain(..).for_each(|index| adaptation.late(index, waited));
        }
        self.boundary = step.0 as usize + 1;
        self.leave(m)?;
        if self.boundary + 1 == self.leaving.len() {
            self.come(m)?;
        }
        Ok(())
    }

    fn iteration_ended(&mut self, m: &mut Manager) -> Result<(), Error> {
        (self.boundary, self.left) = (0, 0);
        self.bringing.clear();
        if self.adaptation.as_mut().is_some_and(|adaptation| adaptation.end(m.now())) {
            self.reschedule();
        }
        Ok(())
    }
}
