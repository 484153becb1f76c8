//! Tables of buffers: what is read, what is written, and what is said of tables that are wrong.

use fastrand::Rng;
use tiercel_core::Bytes;
use tiercel_plan::layout::Buffer;
use tiercel_plan::layout::table::read;
use tiercel_testbed::for_seeds;

#[test]
fn columns_come_in_any_order_and_others_are_kept() {
    let text = "size, UPPER,id ,note,lower\r\n10,4,a,\"x, \"\"y\"\"\",1\r\n\r\n20,5,b b,,0\r\n";
    let table = read(text.as_bytes()).expect("reads");
    assert_eq!(table.buffers, [Buffer::new(1, 4, Bytes(10)), Buffer::new(0, 5, Bytes(20))]);
    assert_eq!(table.ids, ["a", "b b"]);
    let written = table.write(&[Bytes(20), Bytes(0)]);
    assert_eq!(written, "size,UPPER,id,note,lower,offset\n10,4,a,\"x, \"\"y\"\"\",1,20\n20,5,b b,,0,0\n");
}

#[test]
fn a_result_can_be_read_again() {
    let text = "id,offset,lower,upper,size,alignment\n7,99,0,3,8,4\n8,,1,2,8,\n";
    let table = read(text.as_bytes()).expect("reads");
    assert_eq!(table.buffers, [Buffer::new(0, 3, Bytes(8)).aligned(Bytes(4)), Buffer::new(1, 2, Bytes(8))]);
    let written = table.write(&[Bytes(0), Bytes(8)]);
    assert_eq!(written, "id,offset,lower,upper,size,alignment\n7,0,0,3,8,4\n8,8,1,2,8,\n");
    assert_eq!(read(written.as_bytes()).expect("reads").buffers, table.buffers);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let cases: [(&[u8], &str); 20] = [
        (b"", "line 1: the file is empty; a header with id, lower, upper and size was expected"),
        (b"\n \n", "line 1: the file is empty; a header with id, lower, upper and size was expected"),
        (
            b"id,lower,upper\n",
            "line 1, column `size`: the header has no such column; it has: id, lower, upper",
        ),
        (b"0,1,2,3\n", "line 1, column `id`: the header has no such column; it has: 0, 1, 2, 3"),
        (b"id,lower,upper,size,Size\n", "line 1, column `size`: this column appears twice"),
        (b"id,lower,upper,size,offset,offset\n", "line 1, column `offset`: this column appears twice"),
        (b"id,lower,upper,size\n0,1,2\n", "line 2: 3 fields where the header has 4"),
        (b"id,lower,upper,size\n\n0,1,2,3,4\n", "line 3: 5 fields where the header has 4"),
        (b"id,lower,upper,size\n0,1,2,3\n1,1,x,3\n", "line 3, column `upper`: `x` is no whole number"),
        (b"id,lower,upper,size\n0,1,2,1.5\n", "line 2, column `size`: `1.5` is no whole number"),
        (b"id,lower,upper,size\n0,1,2,1e3\n", "line 2, column `size`: `1e3` is no whole number"),
        (b"id,lower,upper,size\n0,-1,2,3\n", "line 2, column `lower`: -1 is negative"),
        (b"id,lower,upper,size\n0,,2,3\n", "line 2, column `lower`: a number is missing"),
        (
            b"id,lower,upper,size\n0,1,99999999999999999999,3\n",
            "line 2, column `upper`: 99999999999999999999 is more than 64 bits count",
        ),
        (
            b"id,lower,upper,size\n0,2,2,3\n",
            "line 2, column `upper`: 2 must be greater than lower, which is 2",
        ),
        (
            b"id,lower,upper,size\n0,3,2,3\n",
            "line 2, column `upper`: 2 must be greater than lower, which is 3",
        ),
        (b"id,lower,upper,size\n0,1,2,0\n", "line 2, column `size`: a buffer needs at least one byte"),
        (
            b"id,lower,upper,size,alignment\n0,1,2,3,0\n",
            "line 2, column `alignment`: an alignment is 1 at least",
        ),
        (b"id,lower,upper,size\n0,1,2,3\n\"1,1,2,3\n", "line 3: a quotation mark is never closed"),
        (b"id,lower,upper,size\n0,1,2,3\n\xff,1,2,3\n", "line 3: this is no UTF-8 text"),
    ];
    for (text, expected) in cases {
        let error = read(text).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
}

/// Nothing that anybody puts into a file makes the reader panic, and what it reads it writes so that it reads the same.
#[test]
fn any_text_is_read_or_refused() {
    let parts = [
        "id", "lower", "upper", "size", ",", ",", ",", "\n", "\n", "\"", "1", "2", "30", " ", "\r\n", "-",
        "é", "\u{feff}",
    ];
    for_seeds(5000, |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut text = String::new();
        if rng.bool() {
            text.push_str("id,lower,upper,size\n");
            for _ in 0..rng.usize(0..4) {
                text.push_str("a,1,2,30\n");
            }
        }
        for _ in 0..rng.usize(0..30) {
            text.push_str(parts[rng.usize(0..parts.len())]);
        }
        let Ok(table) = read(text.as_bytes()) else { return };
        let offsets = vec![Bytes(5); table.buffers.len()];
        let again = read(table.write(&offsets).as_bytes()).expect("what was written can be read");
        assert_eq!((&again.buffers, &again.ids), (&table.buffers, &table.ids), "{text:?}");
        assert_eq!(again.write(&offsets), table.write(&offsets));
    });
}
