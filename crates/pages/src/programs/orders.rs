//! A shop with warehouses, after TPC-C: new orders, payments and deliveries, in memory.
//!
//! Four fifths of the transactions go to a fifth of the warehouses. Customers and items are drawn unevenly as TPC-C's are;
//! orders are appended, so the newest are hot and yesterday's are not.

use super::{LINE, Recorder};

/// Sizes of rows and how many a warehouse has, smaller than TPC-C's so that there are many warehouses.
const CUSTOMERS: u64 = 30;
const CUSTOMER: u64 = 640;
const STOCKS: u64 = 100;
const STOCK: u64 = 320;
const DISTRICTS: u64 = 10;
const ROW: u64 = 128;
const ITEMS: u64 = 1000;
const ORDER: u64 = 512;

pub(super) fn run(recorder: &mut Recorder, bytes: u64, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x7470_6363);
    let warehouse = CUSTOMERS * CUSTOMER + STOCKS * STOCK + DISTRICTS * ROW + ROW;
    let ring_bytes = bytes / 4;
    let warehouses = (bytes - ring_bytes) / warehouse;
    let customers = recorder.room(warehouses * CUSTOMERS * CUSTOMER);
    let stocks = recorder.room(warehouses * STOCKS * STOCK);
    let ring = recorder.room(ring_bytes);
    let items = recorder.room(ITEMS * ROW);
    let districts = recorder.room(warehouses * (DISTRICTS + 1) * ROW);
    recorder.stream_write(customers, warehouses * CUSTOMERS * CUSTOMER);
    recorder.stream_write(stocks, warehouses * STOCKS * STOCK);
    recorder.stream_write(ring, ring_bytes);
    recorder.stream_write(items, ITEMS * ROW);
    recorder.stream_write(districts, warehouses * (DISTRICTS + 1) * ROW);
    recorder.begin(200.0);
    // Which warehouses are busy has nothing to do with where they lie.
    let mut place: Vec<u64> = (0..warehouses).collect();
    random.shuffle(&mut place);
    let slots = ring_bytes / ORDER;
    let mut next = 0u64;
    let mut delivered = 0u64;
    let mut money = vec![0u64; warehouses as usize];
    let mut paid = 0u64;
    // TPC-C's uneven numbers.
    let uneven = |random: &mut fastrand::Rng, a: u64, n: u64| (random.u64(..a) | random.u64(..n)) % n;
    while !recorder.full() {
        let busy = (warehouses / 5).max(1);
        let which = if random.u32(..5) < 4 { random.u64(..busy) } else { random.u64(..warehouses) };
        let home = place[which as usize];
        let district = districts + (home * (DISTRICTS + 1) + 1 + random.u64(..DISTRICTS)) * ROW;
        let customer = home * CUSTOMERS + uneven(&mut random, CUSTOMERS / 2, CUSTOMERS);
        let customer = customers + customer * CUSTOMER;
        match random.u32(..100) {
            0..=44 => {
                recorder.read(districts + home * (DISTRICTS + 1) * ROW);
                recorder.write(district);
                recorder.read(customer);
                for _ in 0..random.u32(5..=15) {
                    let item = uneven(&mut random, ITEMS / 8, ITEMS);
                    recorder.read(items + item * ROW);
                    let stock = stocks + (home * STOCKS + item % STOCKS) * STOCK;
                    recorder.write(stock);
                    recorder.stream_read(stock + LINE, STOCK - LINE);
                }
                recorder.stream_write(ring + next % slots * ORDER, ORDER);
                next += 1;
            }
            45..=87 => {
                recorder.write(districts + home * (DISTRICTS + 1) * ROW);
                recorder.write(district);
                recorder.write(customer);
                recorder.stream_write(customer + LINE, CUSTOMER - LINE);
                money[home as usize] += 1;
                paid += 1;
            }
            88..=91 if delivered < next => {
                // The oldest ten that are not delivered.
                for _ in 0..10.min(next - delivered) {
                    recorder.write(ring + delivered % slots * ORDER);
                    delivered += 1;
                }
                recorder.write(customer);
            }
            _ => {
                // The state of a recent order, and how much is in stock.
                recorder.read(customer);
                if next > 0 {
                    let order = next - 1 - random.u64(..next.min(200));
                    recorder.read(ring + order % slots * ORDER);
                    recorder.stream_read(ring + order % slots * ORDER + LINE, ORDER - LINE);
                }
                for _ in 0..10 {
                    recorder.read(stocks + (home * STOCKS + random.u64(..STOCKS)) * STOCK);
                }
            }
        }
    }
    assert_eq!(money.iter().sum::<u64>(), paid, "no payment is lost");
}
