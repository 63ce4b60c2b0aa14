//! Many clients at once: order across connections, and masterships that end under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use super::harness::*;

#[test]
fn values_increase_in_real_time_over_64_connections() {
    let node = Node::master();
    let highest = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let highest = highest.clone();
            let mut clients: Vec<_> = (0..8).map(|_| node.client()).collect();
            thread::spawn(move || {
                for call in 0..200 {
                    for (index, client) in clients.iter_mut().enumerate() {
                        let range = 1 + (number * index + call) as i32 % 90;
                        // What anybody was told before this call begins is below its answer.
                        let before = highest.load(SeqCst);
                        let first = client.call(range).value();
                        assert!(first > before, "{first} after {before}");
                        highest.fetch_max(first + range as u64 - 1, SeqCst);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("strictly increasing"));
    node.await_sum("timestamp_calls", 8 * 8 * 200);
}

#[test]
fn a_mastership_that_ends_under_load_gives_nothing_afterwards() {
    let node = Node::master();
    let stop = Arc::new(AtomicBool::new(false));
    // Odd from when the oracle has been revoked until the next mastership is about to begin.
    let epoch = Arc::new(AtomicU64::new(0));
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let threads: Vec<_> = (0..6)
        .map(|_| {
            let (stop, epoch, seen) = (stop.clone(), epoch.clone(), seen.clone());
            let address = node.address;
            thread::spawn(move || {
                let mut client = Client::connect(address);
                while !stop.load(SeqCst) {
                    let before = epoch.load(SeqCst);
                    let said = client.try_call(3);
                    let is_over = before % 2 == 1 && epoch.load(SeqCst) == before;
                    match said {
                        Ok(Said::Value(value)) => {
                            assert!(!is_over, "{value} was handed out between masterships");
                            seen.lock().expect("no panic").push(value);
                        }
                        Ok(Said::Exception(kind, _)) => assert_eq!(kind, 6),
                        // What was made and may not leave closes the connection.
                        Err(_) => client = Client::connect(address),
                    }
                }
            })
        })
        .collect();
    for _ in 0..40 {
        let count = seen.lock().expect("no panic").len();
        until("values", || (seen.lock().expect("no panic").len() > count + 50).then_some(()));
        let last = node.oracle.revoke().0;
        epoch.fetch_add(1, SeqCst);
        let refused = node.sum("timestamp_refusals_not_serving");
        until("refusals", || {
            (node.sum("timestamp_refusals_not_serving") > refused + 50).then_some(())
        });
        let highest = seen.lock().expect("no panic").iter().max().copied().unwrap_or(0);
        assert!(highest + 2 <= last, "{highest} left, the oracle told {last}");
        epoch.fetch_add(1, SeqCst);
        node.begin();
    }
    stop.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("no value in between"));
    let mut values = seen.lock().expect("no panic").clone();
    values.sort_unstable();
    assert!(values.windows(2).all(|pair| pair[0] + 3 <= pair[1]), "ranges overlap");
}

#[test]
fn a_node_stops_under_load() {
    let node = Node::master();
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (stop, address) = (stop.clone(), node.address);
            let mut client = Client::connect(address);
            thread::spawn(move || while !stop.load(SeqCst) && client.try_call(1).is_ok() {})
        })
        .collect();
    until("some load", || (node.sum("timestamp_calls") > 1_000).then_some(()));
    drop(node);
    stop.store(true, SeqCst);
    threads.into_iter().for_each(|thread| thread.join().expect("a client ends with the node"));
}
