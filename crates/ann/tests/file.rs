//! Index files: what was saved is loaded, in memory or in the file itself; what is damaged is an error.

use std::fs;
use std::path::PathBuf;

use tiercel_ann::{
    AnnError, Ask, Dtype, FastMemory, Filter, Index, Info, Matrix, Metric, NOBODY, Needs, SaveOptions, Spec,
    TierAsk, Tiered,
};

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tiercel-ann-{name}-{}", std::process::id()))
}

fn numbers(random: &mut fastrand::Rng, count: usize, dim: usize) -> Vec<f32> {
    let centres: Vec<i32> = (0..20 * dim).map(|_| random.i32(10..110)).collect();
    let row = |random: &mut fastrand::Rng| {
        let centre = random.usize(0..20) * dim;
        (0..dim).map(|at| (centres[centre + at] + random.i32(-9..10)) as f32).collect::<Vec<f32>>()
    };
    (0..count).flat_map(|_| row(random)).collect()
}

fn built(dim: usize, count: usize, metric: Metric, dtype: Dtype) -> (Index, Vec<f32>) {
    let mut random = fastrand::Rng::with_seed(count as u64);
    let all = numbers(&mut random, count + 50, dim);
    let mut index = Index::new(Spec { m: 8, ef_construction: 60, ..Spec::new(dim, metric, dtype) }).unwrap();
    let labels: Vec<u64> = (0..count as u64).map(|n| n * 3 + 1).collect();
    index.add_items(&Matrix::of_f32(dim, &all[..count * dim]).unwrap(), Some(&labels), 2).unwrap();
    (index, all[count * dim..].to_vec())
}

#[test]
fn what_was_saved_is_loaded() {
    for (dim, dtype, metric) in [
        (20, Dtype::F32, Metric::L2),
        (33, Dtype::U8, Metric::Cosine),
        (700, Dtype::Bf16, Metric::InnerProduct),
    ] {
        let path = place(&format!("same-{dtype}"));
        let (mut index, queries) = built(dim, 1500, metric, dtype);
        let queries = Matrix::of_f32(dim, &queries).unwrap();
        for label in 0..100 {
            index.remove(label * 6 + 1).unwrap();
        }
        let truth = index.exact(&queries, 10, 2).unwrap();
        index.set_ef(99);
        index.save(&path, &SaveOptions { code_bits: 0, threads: 2, ..SaveOptions::default() }).unwrap();
        let mut back = Index::load(&path).unwrap();
        assert_eq!((back.len(), back.ef(), back.spec()), (1400, 99, index.spec()));
        assert_eq!(back.exact(&queries, 10, 2).unwrap().distances, truth.distances);
        let found = back.knn_query(&queries, 10, &Ask::default()).unwrap();
        assert!(found.recall(&truth.labels, 10) > 0.95);
        for label in back.labels().collect::<Vec<u64>>() {
            assert_eq!(back.vector(label), index.vector(label));
        }
        // It goes on from there.
        back.add_items(&queries, None, 1).unwrap();
        back.remove(back.labels().max().unwrap()).unwrap();
        assert_eq!(back.len(), 1449);
        fs::remove_file(&path).unwrap();
    }
}

/// With any number of threads, more than the index was opened for among them, the memory held stays within the limit.
#[test]
fn a_fifth_of_the_memory_answers_as_all_of_it() {
    for (dim, count, dtype, metric, threads) in [
        (96, 9000, Dtype::F32, Metric::L2, 2),
        (400, 12000, Dtype::U8, Metric::L2, 1),
        (1500, 1500, Dtype::F32, Metric::Cosine, 3),
    ] {
        let path = place(&format!("fifth-{dim}"));
        let (mut index, queries) = built(dim, count, metric, dtype);
        let queries = Matrix::of_f32(dim, &queries).unwrap();
        let truth = index.exact(&queries, 10, 2).unwrap();
        index.save(&path, &SaveOptions { code_bits: 1, threads: 2, ..SaveOptions::default() }).unwrap();
        let tiered = Tiered::open(&path, FastMemory::Share(0.35), threads).unwrap();
        let ask = TierAsk { recall: Some(0.95), threads: 4, ..TierAsk::default() };
        let (found, moved) = tiered.knn_query(&queries, 10, &ask).unwrap();
        let recall = found.recall(&truth.labels, 10);
        assert!(recall >= 0.93, "{dim}: {recall}");
        assert!(moved.reads > 0 && moved.bytes % 4096 == 0, "{moved:?}");
        assert!(tiered.resident() <= tiered.limit(), "{} of {}", tiered.resident(), tiered.limit());
        // From threads of the caller's own: they wait for each other, and take no more.
        std::thread::scope(|scope| {
            (0..4).for_each(|_| {
                scope.spawn(|| assert_eq!(tiered.knn_query(&queries, 10, &ask).unwrap().0, found));
            });
        });
        assert!(tiered.resident() <= tiered.limit(), "{} of {}", tiered.resident(), tiered.limit());
        // One at a time, and by one thread: the same answers.
        let (alone, _, times) = tiered.timed(&queries, 10, &ask).unwrap();
        assert!(times.len() == 50);
        let recall = alone.recall(&truth.labels, 10);
        assert!(recall >= 0.93, "{dim}: {recall}");
        // A filter is kept, and what it wants is found.
        let wanted = |label: u64| label % 40 == 1;
        let filter = Some(Filter::Predicate(&wanted));
        let (found, _) = tiered.knn_query(&queries, 10, &TierAsk { filter, ..ask }).unwrap();
        let exact = index.knn_query(&queries, 10, &Ask { filter, ef: Some(8000), ..Ask::default() }).unwrap();
        assert!(found.labels.iter().all(|label| wanted(*label)));
        assert!(found.recall(&exact.labels, 10) > 0.97);
        fs::remove_file(&path).unwrap();
    }
}

/// Where memory is so short that lists of links are cut, settings were measured with the short lists.
#[test]
fn a_recall_is_reached_with_short_lists_of_links() {
    let path = place("short");
    let (mut index, queries) = built(64, 20_000, Metric::L2, Dtype::F32);
    let queries = Matrix::of_f32(64, &queries).unwrap();
    let truth = index.exact(&queries, 10, 2).unwrap();
    let options = SaveOptions { code_bits: 1, threads: 2, ..SaveOptions::default() };
    index.save(&path, &options).unwrap();
    let Err(AnnError::FastMemory { wanted, .. }) =
        Tiered::open(&path, FastMemory::Bytes(tiercel_core::Bytes(1)), 2)
    else {
        panic!("a byte is enough");
    };
    // Enough for a link or two more than the fewest.
    let fast = FastMemory::Bytes(tiercel_core::Bytes(wanted.0 + 60_000));
    let recall = |options: &SaveOptions, index: &mut Index| {
        index.save(&path, options).unwrap();
        let tiered = Tiered::open(&path, fast, 2).unwrap();
        let ask = TierAsk { recall: Some(0.95), ..TierAsk::default() };
        let promised = tiered.settings().iter().map(|setting| setting.recall).fold(0.0, f32::max);
        (tiered.knn_query(&queries, 10, &ask).unwrap().0.recall(&truth.labels, 10), promised)
    };
    let all_links = recall(&options, &mut index);
    let short = recall(&SaveOptions { fast: Some(fast), ..options }, &mut index);
    // The most that is promised is less, because it was measured with less.
    assert!(short.1 < all_links.1, "{short:?} {all_links:?}");
    assert!(short.0 >= 0.93 && short.0 >= all_links.0, "{short:?} {all_links:?}");
    fs::remove_file(&path).unwrap();
}

/// What any number of vectors takes is what an index of that number takes.
#[test]
fn calculated_sizes_are_those_of_a_file() {
    let path = place("needs");
    let (mut index, _) = built(96, 5000, Metric::L2, Dtype::U8);
    index.save(&path, &SaveOptions { code_bits: 2, threads: 1, ..SaveOptions::default() }).unwrap();
    let info = Info::read(&path).unwrap();
    assert_eq!(info.code_bits, Some(2));
    assert!((info.links - index.mean_links()).abs() < 0.1, "{} {}", info.links, index.mean_links());
    let needs = Needs::of(&info.spec, 5000, info.links, 2);
    let near =
        |ours: u64, there: u64| assert!((ours as f64 / there as f64 - 1.0).abs() < 0.1, "{ours} {there}");
    near(needs.file.0, info.file.0);
    assert_eq!(needs.whole, info.memory);
    fs::remove_file(&path).unwrap();
}

/// Labels by themselves have a checksum of their own; vectors are found by label without reading the others.
#[test]
fn labels_are_read_by_themselves() {
    let path = place("labels");
    let (mut index, queries) = built(64, 3000, Metric::L2, Dtype::F32);
    let query = Matrix::of_f32(64, &queries[..64]).unwrap();
    index.save(&path, &SaveOptions { code_bits: 1, threads: 1, ..SaveOptions::default() }).unwrap();
    let open = || Tiered::open(&path, FastMemory::Bytes(tiercel_core::Bytes::mib(2)), 1).unwrap();
    let mut labels = open().labels().unwrap();
    labels.sort_unstable();
    assert!(labels.iter().copied().eq((0..3000).map(|n| n * 3 + 1)));
    let found = open().vectors(&[4, 5, 8998, 4]).unwrap();
    assert_eq!(found, [index.vector(4), None, index.vector(8998), index.vector(4)]);
    let mut bytes = fs::read(&path).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // The table of sections begins at 76; labels are of the ninth kind.
    let entry = (0..16).map(|at| 76 + at * 24).find(|at| bytes[*at] == 8).unwrap();
    let start = word(entry + 8) as usize;
    assert_eq!(word(entry + 16), 3000 * 8);
    bytes[start + 77] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let tiered = open();
    let wanted = |label: u64| label % 2 == 1;
    let ask = TierAsk { filter: Some(Filter::Predicate(&wanted)), ..TierAsk::default() };
    for error in [tiered.knn_query(&query, 3, &ask).err(), tiered.labels().err(), tiered.vectors(&[4]).err()]
    {
        assert!(error.unwrap().to_string().contains("its Labels are damaged"));
    }
    // Whoever asks for nothing of them is not troubled.
    assert!(tiered.knn_query(&query, 3, &TierAsk::default()).is_ok());
    fs::remove_file(&path).unwrap();
}

#[test]
fn too_little_memory_is_told() {
    let path = place("little");
    let (mut index, _) = built(64, 1000, Metric::L2, Dtype::F32);
    index.save(&path, &SaveOptions { code_bits: 8, threads: 1, ..SaveOptions::default() }).unwrap();
    let error = Tiered::open(&path, FastMemory::Share(0.05), 1).err().unwrap().to_string();
    assert!(error.starts_with("fast memory of "), "{error}");
    index.save(&path, &SaveOptions { code_bits: 0, threads: 1, ..SaveOptions::default() }).unwrap();
    assert!(Tiered::open(&path, FastMemory::Share(0.5), 1).is_err());
    assert!(index.save(&path, &SaveOptions { code_bits: 3, threads: 1, ..SaveOptions::default() }).is_err());
    fs::remove_file(&path).unwrap();
}

#[test]
fn few_vectors_and_none_are_saved_too() {
    for count in [0, 1, 2, 5] {
        let path = place(&format!("few-{count}"));
        let (mut index, _) = built(8, count, Metric::L2, Dtype::F32);
        index.save(&path, &SaveOptions::default()).unwrap();
        let back = Index::load(&path).unwrap();
        assert_eq!(back.len(), count);
        let query = Matrix::of_f32(8, &[1.0; 8]).unwrap();
        let found = back.knn_query(&query, 3, &Ask::default()).unwrap();
        assert_eq!(found.labels.iter().filter(|label| **label != NOBODY).count(), count.min(3));
        if count > 0 {
            let memory = FastMemory::Bytes(tiercel_core::Bytes::mib(2));
            let tiered = Tiered::open(&path, memory, 1).unwrap();
            let (again, _) = tiered.knn_query(&query, 3, &TierAsk::default()).unwrap();
            assert_eq!(again.labels, found.labels);
        }
        fs::remove_file(&path).unwrap();
    }
}

/// A saving that cannot be ended leaves the old index, and nothing else.
#[test]
fn a_failed_saving_leaves_the_old_index() {
    let folder = place("folder");
    fs::create_dir_all(folder.join("taken")).unwrap();
    let (mut index, _) = built(8, 100, Metric::L2, Dtype::F32);
    assert!(index.save(&folder.join("taken"), &SaveOptions::default()).is_err(), "a folder has the name");
    assert!(index.save(&folder.join("nowhere/index"), &SaveOptions::default()).is_err());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(&folder).unwrap();
}
