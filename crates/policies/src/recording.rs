//! What a program did in one iteration, as a policy sees it: which objects there were, when they were made, used and given
//! up, where layers ended, and how long kernels took.
//!
//! Systems that profile an iteration and then decide for all later ones need a name for an object that holds from one
//! iteration to the next. What is made anew in each is known by its turn ([`Key::Born`]), what outlives them by when it
//! was first seen ([`Key::Given`]). Two iterations are the same if the same keys are used in the same way kernel by kernel,
//! whatever the sizes.

use std::collections::HashMap;

use tiercel_core::{Access, Bytes, Manager, Nanos, ObjectId, Operand};
use tiercel_profile::accesses::{PAGE, accesses_of};
use tiercel_profile::sharing::Life;

use crate::quick::QuickMap;

/// What an object is called in every iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The so-manieth object that outlives iterations.
    Given(u32),
    /// The so-manieth object that this iteration made.
    Born(u32),
}

/// One object of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// What it is called.
    pub key: Key,
    /// The program's name for it.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// How often its pages are accessed, all together.
    pub accesses: u64,
    /// The kernels that use it, in order.
    pub uses: Vec<u32>,
    /// The kernels that write it, in order.
    pub writes: Vec<u32>,
    /// The kernel before which it was made; none for what was there before.
    pub birth: Option<u32>,
    /// Whether it comes from outside: it is filled before the first kernel.
    pub fed: bool,
    /// The kernel after which it was given up; none for what outlives the iteration.
    pub retired: Option<u32>,
    /// When it is there, in visits of layers.
    pub life: Life,
}

impl Item {
    /// How often each of its pages is accessed.
    pub fn passes(&self) -> f64 {
        self.accesses as f64 / self.size.0.div_ceil(PAGE.0).max(1) as f64
    }

    /// Whether it lives and dies within one visit of a layer.
    pub fn is_short(&self) -> bool {
        matches!(self.life, Life::Short { .. })
    }
}

/// One kernel of an iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// What it used.
    pub operands: Vec<(Key, Access)>,
    /// How long it took, without waiting.
    pub time: Nanos,
    /// The visit of a layer that it belongs to.
    pub visit: u32,
}

/// One iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// Its objects: those that outlive it, then those that it made, in order.
    pub items: Vec<Item>,
    /// How many of them outlive it.
    pub given: usize,
    /// How many objects were there before it and after it, used or not.
    pub outliving: u32,
    /// Its kernels.
    pub moments: Vec<Moment>,
}

impl Recording {
    /// The bytes that come from outside in an iteration.
    pub fn fed(&self) -> Bytes {
        self.items.iter().filter(|item| item.fed).map(|item| item.size).sum()
    }

    /// How many visits of layers there are.
    pub fn visits(&self) -> u32 {
        self.moments.last().map_or(0, |moment| moment.visit + 1)
    }

    /// The position of an object.
    pub fn find(&self, key: Key) -> Option<usize> {
        match key {
            Key::Born(turn) => Some(self.given + turn as usize).filter(|at| *at < self.items.len()),
            Key::Given(_) => self.items[..self.given].binary_search_by_key(&key, |item| item.key).ok(),
        }
    }
}

/// One object that this iteration made.
#[derive(Clone, Debug)]
struct Birth {
    object: ObjectId,
    name: String,
    size: Bytes,
    step: u32,
    visit: u32,
    fed: bool,
    retired: Option<(u32, u32)>,
}

/// Bytes that one kernel uses of one object.
#[derive(Clone, Debug)]
struct Line {
    operands: Vec<(Key, Access)>,
    bytes: Vec<Bytes>,
    time: Nanos,
    visit: u32,
}

/// Writes an iteration down while it happens.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    keys: QuickMap<ObjectId, Key>,
    objects: HashMap<Key, ObjectId>,
    /// Names and sizes of what outlives iterations, and the numbers of those that were given up after all.
    given: Vec<(String, Bytes)>,
    vacant: Vec<u32>,
    /// How many of the first objects are known to outlive iterations before any has ended.
    expected: u32,
    births: Vec<Birth>,
    lines: Vec<Line>,
    visit: u32,
    /// Kernels before the present layer.
    marked: usize,
    began: Option<(Nanos, Nanos)>,
}

impl Recorder {
    /// A recorder that takes the first objects it sees for just those that outlive the iterations of this recording.
    pub fn expecting(recording: &Recording) -> Recorder {
        Recorder { expected: recording.outliving, ..Recorder::default() }
    }

    /// An object was made; says what it is called.
    pub fn born(&mut self, m: &Manager, object: ObjectId) -> Key {
        let (name, size) = (m.what(object), m.size(object).unwrap_or_default());
        if (self.given.len() as u32) < self.expected {
            self.given.push((name, size));
            let key = Key::Given(self.given.len() as u32 - 1);
            self.name(object, key);
            return key;
        }
        let key = Key::Born(self.births.len() as u32);
        let step = self.lines.len() as u32;
        self.births.push(Birth { object, name, size, step, visit: self.visit, fed: false, retired: None });
        self.name(object, key);
        key
    }

    /// An object was given up.
    pub fn retired(&mut self, object: ObjectId) {
        let key = self.keys.remove(&object);
        if let Some(key) = key {
            self.objects.remove(&key);
        }
        if let Some(Key::Given(number)) = key {
            self.vacant.push(number);
        }
        if let Some(Key::Born(turn)) = key {
            let last = (self.lines.len() as u32).saturating_sub(1);
            self.births[turn as usize].retired = Some((last, self.visit));
        }
    }

    /// Objects are filled from outside, before the first kernel.
    pub fn loaded(&mut self, operands: &[Operand]) {
        for operand in operands.iter().filter(|operand| operand.access.writes()) {
            if let Some(Key::Born(turn)) = self.key(operand.object) {
                self.births[turn as usize].fed = true;
            }
        }
    }

    /// What an object is called.
    pub fn key(&self, object: ObjectId) -> Option<Key> {
        self.keys.get(&object).copied()
    }

    /// The object of that name, while it is there.
    pub fn object(&self, key: Key) -> Option<ObjectId> {
        self.objects.get(&key).copied()
    }

    fn name(&mut self, object: ObjectId, key: Key) {
        self.keys.insert(object, key);
        self.objects.insert(key, object);
    }

    /// A kernel is about to begin.
    pub fn before(&mut self, operands: &[Operand]) {
        let known = |o: &Operand| Some((self.key(o.object)?, o.access));
        self.lines.push(Line {
            operands: operands.iter().filter_map(known).collect(),
            bytes: operands.iter().filter(|o| self.keys.contains_key(&o.object)).map(|o| o.bytes).collect(),
            time: Nanos::ZERO,
            visit: self.visit,
        });
    }

    /// All that a policy does before the kernel is done.
    pub fn starts(&mut self, m: &Manager) {
        self.began = Some((m.now(), m.totals().stall));
    }

    /// The kernel has ended.
    pub fn after(&mut self, m: &Manager) {
        let Some((began, stalled)) = self.began.take() else { return };
        let waited = m.totals().stall.saturating_sub(stalled);
        if let Some(line) = self.lines.last_mut() {
            line.time = m.now().saturating_sub(began).saturating_sub(waited);
        }
    }

    /// A layer has ended.
    pub fn layer_ended(&mut self) {
        if self.lines.len() > self.marked {
            self.marked = self.lines.len();
            self.visit += 1;
        }
    }

    /// How many kernels have begun.
    pub fn steps(&self) -> usize {
        self.lines.len()
    }

    /// What the kernel before `steps()` used.
    pub fn line(&self, step: usize) -> &[(Key, Access)] {
        &self.lines[step].operands
    }

    /// The bytes that came from outside for this iteration.
    pub fn fed(&self) -> Bytes {
        self.births.iter().filter(|birth| birth.fed).map(|birth| birth.size).sum()
    }

    /// The iteration has ended: forgets it.
    pub fn forget(&mut self) {
        let births = std::mem::take(&mut self.births);
        for birth in births.into_iter().filter(|birth| birth.retired.is_none()) {
            self.outlives(birth);
        }
        self.lines.clear();
        (self.visit, self.marked, self.began) = (0, 0, None);
    }

    /// The iteration has ended: hands it over. What is still there outlives iterations from now on.
    pub fn finish(&mut self) -> Recording {
        let births = std::mem::take(&mut self.births);
        let mut renamed = Vec::with_capacity(births.len());
        let mut born = Vec::new();
        for birth in births {
            if birth.retired.is_some() {
                renamed.push(Key::Born(born.len() as u32));
                born.push(birth);
            } else {
                renamed.push(self.outlives(birth));
            }
        }
        let mut lines = std::mem::take(&mut self.lines);
        // A program without marks: every kernel is a layer.
        let unmarked = lines.last().is_none_or(|line| line.visit == 0);
        for (at, line) in lines.iter_mut().enumerate() {
            for (key, _) in &mut line.operands {
                if let Key::Born(turn) = *key {
                    *key = renamed[turn as usize];
                }
            }
            if unmarked {
                line.visit = at as u32;
            }
        }
        self.forget();
        self.gather(&born, lines, unmarked)
    }

    /// From now on the object is known as one that outlives iterations.
    fn outlives(&mut self, birth: Birth) -> Key {
        let number = self.vacant.pop().unwrap_or(self.given.len() as u32);
        let key = Key::Given(number);
        if let Some(earlier) = self.keys.get(&birth.object) {
            self.objects.remove(earlier);
        }
        self.name(birth.object, key);
        match self.given.get_mut(number as usize) {
            Some(known) => *known = (birth.name, birth.size),
            None => self.given.push((birth.name, birth.size)),
        }
        key
    }

    /// Puts objects and kernels together.
    fn gather(&self, born: &[Birth], lines: Vec<Line>, unmarked: bool) -> Recording {
        let used = lines.iter().flat_map(|line| &line.operands).map(|(key, _)| *key);
        let mut given: Vec<Key> = used.filter(|key| matches!(key, Key::Given(_))).collect();
        given.sort_unstable();
        given.dedup();
        let outliving = given.iter().map(|key| {
            let Key::Given(at) = *key else { unreachable!("just filtered") };
            let (name, size) = self.given[at as usize].clone();
            item(*key, name, size)
        });
        let made = born.iter().enumerate().map(|(turn, birth)| {
            // What was made behind the last kernel counts to it.
            let step = birth.step.min((lines.len() as u32).saturating_sub(1));
            let retired = birth.retired.map(|(last, _)| last.max(step));
            let visits = birth.retired.map(|(last, visit)| if unmarked { last } else { visit });
            let birth_visit = if unmarked { step } else { birth.visit };
            let life = match visits {
                _ if birth.fed => Life::Given,
                Some(last) if last <= birth_visit => Life::Short { visit: birth_visit },
                last => Life::Long { birth: birth_visit, last: last.unwrap_or(birth_visit) },
            };
            Item {
                birth: Some(step),
                fed: birth.fed,
                retired,
                life,
                ..item(Key::Born(turn as u32), birth.name.clone(), birth.size)
            }
        });
        let items = outliving.chain(made).collect();
        let mut recording =
            Recording { items, given: given.len(), outliving: self.given.len() as u32, moments: Vec::new() };
        for (step, line) in lines.into_iter().enumerate() {
            for ((key, access), bytes) in line.operands.iter().zip(&line.bytes) {
                let at = recording.find(*key).expect("every object in use is listed");
                recording.items[at].accesses += accesses_of(*access, *bytes);
                recording.items[at].uses.push(step as u32);
                if access.writes() {
                    recording.items[at].writes.push(step as u32);
                }
            }
            let Line { operands, time, visit, .. } = line;
            recording.moments.push(Moment { operands, time, visit });
        }
        recording
    }
}

fn item(key: Key, name: String, size: Bytes) -> Item {
    Item {
        key,
        name,
        size,
        accesses: 0,
        uses: Vec::new(),
        writes: Vec::new(),
        birth: None,
        fed: false,
        retired: None,
        life: Life::Given,
    }
}
