//! Temporary.
use std::collections::HashMap;
use std::sync::Mutex;
/// x
pub fn knob(name: &str, default: f64) -> f64 {
    static KNOBS: Mutex<Option<HashMap<String, f64>>> = Mutex::new(None);
    let mut knobs = KNOBS.lock().unwrap();
    let map = knobs.get_or_insert_with(HashMap::new);
    if let Some(v) = map.get(name) {
        return *v;
    }
    let v = std::env::var(name).ok().and_then(|t| t.parse().ok()).unwrap_or(default);
    map.insert(name.to_string(), v);
    v
}
/// x
pub fn dual_only(problem: &crate::Problem, cost: f64, marks: &[usize]) -> Vec<f64> {
    let states = crate::paths::States::new(problem);
    let scope = crate::scope::Scope::root(problem, &states);
    let mut dual = crate::dual::Dual::new(problem);
    let mut out = Vec::new();
    let mut done = 0;
    for m in marks {
        while done < *m {
            dual.ascend(problem, &states, &scope, cost, 20, |_| false);
            done += 20;
        }
        out.push(dual.bound);
    }
    out
}
