//! What a run was: the first line of an events file.
//!
//! Events name objects and kernels by what a person can find in the network; the header adds what they are for and
//! the machine that it all happened on, so that the file can be read without the network or the machine file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tiercel_core::{Bytes, Machine, TierId};
use tiercel_workload::Trace;
use tiercel_workload::summary::ROLES;
use tiercel_workload::trace::Role;

/// What a run was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The network, or whatever ran.
    pub net: String,
    /// Samples in a batch, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// The machine's name.
    pub machine: String,
    /// Its tiers, fastest first.
    pub tiers: Vec<Tier>,
    /// The unit that heaps hand out memory in.
    #[serde(default = "one")]
    pub grain: Bytes,
    /// Who decided where objects live.
    pub system: String,
    /// The world that it ran in: `sim`, or `host` for real memory.
    pub on: String,
    /// Whether times were read off a clock on the wall.
    pub measured: bool,
    /// How much fast memory there was.
    pub fast_bytes: Bytes,
    /// The most bytes that are alive at once, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<Bytes>,
    /// Iterations at the start that do not count, because things had yet to settle.
    #[serde(default)]
    pub warmup_iterations: u32,
    /// The objects that are known ahead, by name.
    #[serde(default)]
    pub objects: Vec<Object>,
    /// The kernels of an iteration, in order: the position is the step.
    #[serde(default)]
    pub kernels: Vec<Kernel>,
}

/// A tier of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tier {
    /// Its name.
    pub name: String,
    /// How much of it there was.
    pub capacity: Bytes,
    /// What a gigabyte (10⁹ bytes) costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_gb: Option<f64>,
    /// Whether it was other memory slowed down to stand in for this one.
    #[serde(default)]
    pub emulated: bool,
}

/// An object that is known ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its name, as events have it.
    pub name: String,
    /// What it is for.
    #[serde(default, serialize_with = "write_role", deserialize_with = "read_role")]
    pub role: Option<Role>,
    /// Its size.
    pub bytes: Bytes,
    /// Whether it outlives the iteration.
    #[serde(default)]
    pub persistent: bool,
}

/// A kernel of the iteration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(default)]
    pub op: String,
    /// The layer that it belongs to.
    #[serde(default)]
    pub layer: String,
    /// The part of the iteration that it belongs to: `forward`, `backward` or `update`.
    #[serde(default)]
    pub phase: String,
    /// How long it takes with all its operands in the fastest tier and nothing beside it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_ns: Option<u64>,
}

fn one() -> Bytes {
    Bytes(1)
}

pub(crate) fn write_role<S: Serializer>(role: &Option<Role>, to: S) -> Result<S::Ok, S::Error> {
    role.map(Role::name).serialize(to)
}

pub(crate) fn read_role<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Role>, D::Error> {
    let Some(name) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let role = ROLES.into_iter().find(|role| role.name() == name);
    role.map(Some).ok_or_else(|| {
        let known = ROLES.map(Role::name).join(", ");
        serde::de::Error::custom(format!("there is no role `{name}`; the roles are {known}"))
    })
}

impl Header {
    /// The header of a simulated run of a trace. What else is known may be set: the batch, the peak.
    pub fn simulated(trace: &Trace, machine: &Machine, system: &str) -> Header {
        let tiers = machine.tiers.iter().map(|tier| Tier {
            name: tier.name.clone(),
            capacity: tier.capacity,
            price_per_gb: tier.price_per_gb,
            emulated: false,
        });
        let objects = trace.tensors.iter().map(|tensor| Object {
            name: tensor.name.clone(),
            role: Some(tensor.role),
            bytes: tensor.bytes,
            persistent: tensor.persistent,
        });
        let kernels = trace.kernels.iter().map(|kernel| Kernel {
            name: kernel.name.clone(),
            op: kernel.op.clone(),
            layer: trace.layers.get(kernel.layer as usize).cloned().unwrap_or_default(),
            phase: kernel.phase.name().to_string(),
            fast_ns: None,
        });
        Header {
            net: trace.name.clone(),
            batch: None,
            machine: machine.name.clone(),
            tiers: tiers.collect(),
            grain: machine.grain(),
            system: system.to_string(),
            on: "sim".to_string(),
            measured: false,
            fast_bytes: machine.tiers.first().map_or(Bytes::ZERO, |tier| tier.capacity),
            peak_bytes: None,
            warmup_iterations: 0,
            objects: objects.collect(),
            kernels: kernels.collect(),
        }
    }

    /// The header of a run of a trace on real memory, some of whose tiers may be emulated.
    pub fn measured(
        trace: &Trace,
        machine: &Machine,
        system: &str,
        emulated: impl Fn(TierId) -> bool,
    ) -> Header {
        let mut header = Header::simulated(trace, machine, system);
        (header.on, header.measured) = ("host".to_string(), true);
        for (tier, id) in header.tiers.iter_mut().zip(machine.tier_ids()) {
            tier.emulated = emulated(id);
        }
        header
    }

    /// The name of a tier, or its number where the header has none.
    pub fn tier_name(&self, tier: TierId) -> String {
        self.tiers.get(tier.index()).map_or_else(|| tier.to_string(), |t| t.name.clone())
    }

    /// The names of tiers that stood in for others.
    pub fn emulated(&self) -> Vec<String> {
        self.tiers.iter().filter(|tier| tier.emulated).map(|tier| tier.name.clone()).collect()
    }

    /// How times were had, in a word or two.
    pub fn kind(&self) -> &'static str {
        kind(self.measured, !self.emulated().is_empty())
    }
}

/// How times were had: simulated, measured, or measured on memory that was slowed down.
pub(crate) fn kind(measured: bool, emulated: bool) -> &'static str {
    match (measured, emulated) {
        (false, _) => "simulated",
        (true, false) => "measured",
        (true, true) => "measured, emulated",
    }
}
