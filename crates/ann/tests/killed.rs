//! A program that is killed (`kill -9`) while it saves an index leaves the old index or the new one, whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tiercel_ann::{Ask, Dtype, Index, Matrix, Metric, SaveOptions, Spec};

/// Says to the child where it saves.
const PATH: &str = "TIERCEL_TEST_SAVES_TO";

const DIM: usize = 64;
const COUNT: usize = 800;

/// An index that knows which saving it is of: vector `n` has `turn` in front and its number behind.
fn index(turn: u32) -> Index {
    let mut random = fastrand::Rng::with_seed(u64::from(turn));
    let mut numbers: Vec<f32> = (0..COUNT * DIM).map(|_| random.f32()).collect();
    for (at, vector) in numbers.chunks_exact_mut(DIM).enumerate() {
        (vector[0], vector[1]) = (turn as f32, at as f32);
    }
    let mut index =
        Index::new(Spec { m: 6, ef_construction: 20, ..Spec::new(DIM, Metric::L2, Dtype::F32) }).unwrap();
    index.add_items(&Matrix::of_f32(DIM, &numbers).unwrap(), None, 1).unwrap();
    index
}

/// Which saving an index is of, after a look at all of its vectors.
fn turn(path: &Path) -> f32 {
    let index = Index::load(path).unwrap();
    assert_eq!(index.len(), COUNT);
    let turn = index.vector(0).unwrap()[0];
    for label in 0..COUNT as u64 {
        let vector = index.vector(label).unwrap();
        assert_eq!((vector[0], vector[1]), (turn, label as f32));
        let query = Matrix::of_f32(DIM, &vector).unwrap();
        let found = index.exact(&query, 1, 1).unwrap();
        assert_eq!((found.labels[0], found.distances[0]), (label, 0.0));
        assert!(index.knn_query(&query, 1, &Ask::default()).is_ok());
    }
    turn
}

/// No test, but the program that is killed: saves over and over, two indexes in turns.
#[test]
fn child_that_saves() {
    let Some(path) = std::env::var_os(PATH).map(PathBuf::from) else { return };
    let (mut one, mut two) = (index(1), index(2));
    let options = SaveOptions { code_bits: 1, ..SaveOptions::default() };
    loop {
        one.save(&path, &options).unwrap();
        two.save(&path, &options).unwrap();
    }
}

/// How many files that a process left beside there are.
fn parts(folder: &Path, process: u32) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(&format!("index.{process}-"))).count()
}

#[test]
fn killed_while_saving_the_old_index_is_there() {
    let folder = std::env::temp_dir().join(format!("tiercel-ann-killed-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("index");
    index(0).save(&path, &SaveOptions { code_bits: 1, ..SaveOptions::default() }).unwrap();
    let (mut turns, mut middle) = (Vec::new(), 0);
    for round in 0..12u64 {
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_saves", "--nocapture"])
            .env(PATH, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // A file beside says that it has begun to save; some moments later, other ones each time, it dies.
        while parts(&folder, child.id()) == 0 && fs::metadata(&path).unwrap().modified().unwrap() == before {
            assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_micros(700 * round));
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        turns.push(turn(&path));
        middle += usize::from(parts(&folder, child.id()) > 0);
    }
    println!("the index after each kill is of saving {turns:?}; {middle} kills in the middle of one");
    // What the killed left behind is removed by the next that saves, and what belongs to others is not.
    let others = ["index.notes.part", "index.part", "other.1-1.part"].map(|name| folder.join(name));
    others.iter().for_each(|other| fs::write(other, "mine").unwrap());
    index(3).save(&path, &SaveOptions::default()).unwrap();
    assert_eq!(turn(&path), 3.0);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1 + others.len());
    fs::remove_dir_all(&folder).unwrap();
}
