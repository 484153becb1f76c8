//! Zones: memory set aside stays set aside, and grows and shrinks only where nothing is in the way.

use tiercel_core::{Bytes, Space, ZoneId};

const GRAIN: u64 = 64;

#[test]
fn a_zone_keeps_its_stretch_whatever_happens_outside() {
    let mut space = Space::new(Bytes(10 * GRAIN), Bytes(GRAIN));
    let zone = space.carve("short-lived", Bytes(4 * GRAIN)).unwrap();
    assert_eq!(space.zone_named("short-lived"), Some(zone));
    let outside = space.allocate(ZoneId::MAIN, Bytes(6 * GRAIN), 1).unwrap();
    assert!(space.allocate(ZoneId::MAIN, Bytes(GRAIN), 2).is_none(), "the rest is set aside");
    let inside = space.allocate(zone, Bytes(4 * GRAIN), 3).unwrap();
    assert_eq!(space.used(), Bytes(10 * GRAIN));
    assert!(space.allocate(zone, Bytes(GRAIN), 4).is_none(), "a zone has its own limit");
    assert!(!space.dissolve(zone), "something is in it");
    let (a, b) = (space.offset(ZoneId::MAIN, outside), space.offset(zone, inside));
    assert!(a + Bytes(6 * GRAIN) <= b || b + Bytes(4 * GRAIN) <= a, "zones do not overlap");
    space.free(zone, inside);
    assert!(space.dissolve(zone));
    assert!(space.allocate(ZoneId::MAIN, Bytes(4 * GRAIN), 5).is_some());
    space.check().unwrap();
}

#[test]
fn random_zones_keep_apart() {
    tiercel_testbed::for_seeds(200, |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut space = Space::new(Bytes(random.u64(8..200) * GRAIN), Bytes(GRAIN));
        let mut zones = vec![ZoneId::MAIN];
        let mut live = Vec::new();
        for tag in 0..300 {
            let size = Bytes(random.u64(1..20 * GRAIN));
            match random.u8(0..10) {
                0 if random.bool() => zones.extend(space.carve(&format!("zone {tag}"), size)),
                0 => {
                    let offset = Bytes(random.u64(0..space.capacity().0 / GRAIN) * GRAIN);
                    let zone = space.carve_at(&format!("zone {tag}"), offset, size);
                    assert!(zone.is_none_or(|zone| space.base(zone) == offset));
                    zones.extend(zone);
                }
                1 if zones.len() > 1 => {
                    let at = random.usize(1..zones.len());
                    let before = space.heap(zones[at]).capacity();
                    let done = space.resize(zones[at], size);
                    let wanted = size.round_up(Bytes(GRAIN)).unwrap();
                    assert_eq!(space.heap(zones[at]).capacity(), if done { wanted } else { before });
                }
                2 if zones.len() > 1 => {
                    let at = random.usize(1..zones.len());
                    let empty = space.heap(zones[at]).pieces() == 0;
                    assert_eq!(space.dissolve(zones[at]), empty);
                    if empty {
                        zones.swap_remove(at);
                    }
                }
                3..8 => {
                    let zone = zones[random.usize(0..zones.len())];
                    live.extend(space.allocate(zone, size, tag).map(|block| (zone, block, tag)));
                }
                _ if !live.is_empty() => {
                    let (zone, block, tag) = live.swap_remove(random.usize(0..live.len()));
                    assert_eq!(space.heap(zone).tag(block), tag);
                    space.free(zone, block);
                }
                _ => {}
            }
            space.check().unwrap();
            let mut stretches: Vec<(Bytes, Bytes)> = live
                .iter()
                .map(|(zone, block, _)| (space.offset(*zone, *block), space.heap(*zone).size(*block)))
                .collect();
            stretches.sort();
            assert!(stretches.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "regions overlap");
            assert_eq!(space.used(), stretches.iter().map(|(_, size)| *size).sum());
            assert_eq!(space.pieces(), live.len());
            let mut tags: Vec<u32> = space.tags().collect();
            tags.sort_unstable();
            let mut expected: Vec<u32> = live.iter().map(|(.., tag)| *tag).collect();
            expected.sort_unstable();
            assert_eq!(tags, expected);
        }
    });
}
