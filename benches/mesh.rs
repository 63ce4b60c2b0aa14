//! The mesh between two cores: a request and its reply, in one thread and between two threads that
//! poll. It prints messages per second and allocations per message, beside two `sync_channel`s of
//! the standard library that do the same in the same run.

mod counting;

use std::hint::{black_box, spin_loop};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use chronos::base::ids::{ShardCount, ShardIndex, TimerId};
use chronos::base::time::MonoNs;
use chronos::core::mesh::{MeshPort, Message, Remote, mesh};
use chronos::ring::{available_cores, pin_to_core};
use chronos::shard::effects::{Answer, Reply, Request, Requester, Target};
use chronos::timer::definition::Definition;
use counting::Asked;
use criterion::{Criterion, criterion_group, criterion_main};

const QUEUE_MAX: u32 = 1_024;
/// Requests under way at once between two threads.
const WINDOW: u64 = 64;
/// Round trips between two threads in one measurement; below it the number of measurements. Medians
/// are printed.
const TRIPS: u64 = 200_000;
const ROUNDS: usize = 5;
/// Round trips over which allocations are counted.
const COUNTED: u64 = 1_000;
const CLIENT: ShardIndex = ShardIndex(0);
const SERVER: ShardIndex = ShardIndex(1);
const FROM: Requester = Requester { shard: CLIENT, connection: 1, generation: 1, request: 1 };

fn ports() -> (MeshPort, MeshPort) {
    let mut ports = mesh(ShardCount::new(2), QUEUE_MAX);
    let server = ports.pop().expect("two ports");
    (ports.pop().expect("two ports"), server)
}

fn target() -> Target {
    Target { id: TimerId(7), factor: None, filter: None }
}

fn read() -> Remote {
    Remote::Read(target())
}

/// A PUT, whose definition is copied into memory of its own.
fn update() -> Remote {
    let definition = Definition {
        interval_ms: 60_000,
        repeat_for_ms: 3_600_000,
        factor: Some(2),
        authority: "10.0.0.7:10888",
        content: &[b'c'; 80],
    };
    Remote::copy(&Request::Update(target(), definition))
}

fn serve(server: &mut MeshPort) -> bool {
    match server.receive() {
        Some(Message::Request(to, request, _)) => {
            drop(request);
            server.send_reply(Reply::at_once(to, Answer::NotFound));
            true
        }
        Some(_) => unreachable!("the server asks nothing, and there are no peers"),
        None => false,
    }
}

fn round_trip(client: &mut MeshPort, server: &mut MeshPort, request: Remote) {
    client.send_request(MonoNs(0), SERVER, FROM, request).expect("the queue is empty");
    assert!(serve(server));
    assert!(matches!(black_box(client.receive()), Some(Message::Reply(_))));
}

type Channel<T> = (SyncSender<T>, Receiver<T>);

/// Two bounded channels of the standard library that do the same.
struct Channels {
    requests: Channel<(Requester, Remote)>,
    replies: Channel<Reply>,
}

impl Channels {
    fn new() -> Self {
        let bound = QUEUE_MAX as usize;
        Self { requests: sync_channel(bound), replies: sync_channel(bound) }
    }

    fn round_trip(&self, request: Remote) {
        self.requests.0.try_send((FROM, request)).expect("the queue is empty");
        let (to, request) = self.requests.1.try_recv().expect("just sent");
        drop(request);
        self.replies.0.try_send(Reply::at_once(to, Answer::NotFound)).expect("the queue is empty");
        black_box(self.replies.1.try_recv().expect("just sent"));
    }
}

fn one_thread(criterion: &mut Criterion) {
    let (mut client, mut server) = ports();
    let channels = Channels::new();
    let mut group = criterion.benchmark_group("mesh/one_thread");
    group.bench_function("read", |b| b.iter(|| round_trip(&mut client, &mut server, read())));
    group.bench_function("update", |b| b.iter(|| round_trip(&mut client, &mut server, update())));
    group.bench_function("sync_channel_read", |b| b.iter(|| channels.round_trip(read())));
    group.bench_function("sync_channel_update", |b| b.iter(|| channels.round_trip(update())));
    group.finish();
    println!("allocations of {COUNTED} round trips (two messages each):");
    count("mesh, read", || round_trip(&mut client, &mut server, read()));
    count("mesh, update", || round_trip(&mut client, &mut server, update()));
    count("sync_channel, read", || channels.round_trip(read()));
    count("sync_channel, update", || channels.round_trip(update()));
}

fn count(name: &str, mut trip: impl FnMut()) {
    trip();
    let before = Asked::by_this_thread();
    (0..COUNTED).for_each(|_| trip());
    let asked = Asked::since(before);
    println!("  {name}: {} allocations, {} bytes", asked.allocations, asked.bytes);
}

/// The CPU cores on which the two threads of a measurement run. `None`: the kernel chooses.
type Places = Option<[usize; 2]>;

fn pin(places: Places, which: usize) {
    if let Some(cores) = places {
        pin_to_core(cores[which]).expect("an available core");
    }
}

/// Returns round trips a second through the mesh while both threads poll.
fn mesh_between_threads(places: Places) -> f64 {
    let (mut client, mut server) = ports();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(places, 1);
            let mut served = 0;
            while served < TRIPS {
                if serve(&mut server) {
                    served += 1;
                } else {
                    spin_loop();
                }
            }
        });
        let client = scope.spawn(move || {
            pin(places, 0);
            let begin = Instant::now();
            let (mut sent, mut answered) = (0, 0);
            while answered < TRIPS {
                if sent < TRIPS && sent - answered < WINDOW {
                    client
                        .send_request(MonoNs(0), SERVER, FROM, read())
                        .expect("the window is smaller");
                    sent += 1;
                }
                match client.receive() {
                    Some(_) => answered += 1,
                    None => spin_loop(),
                }
            }
            TRIPS as f64 / begin.elapsed().as_secs_f64()
        });
        client.join().expect("the client ends")
    })
}

/// Returns round trips a second through two channels.
fn channels_between_threads(places: Places) -> f64 {
    let Channels { requests: (ask, asked), replies: (answer, answers) } = Channels::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(places, 1);
            let mut served = 0;
            while served < TRIPS {
                match asked.try_recv() {
                    Ok((to, _)) => {
                        let reply = Reply::at_once(to, Answer::NotFound);
                        answer.try_send(reply).expect("the window is smaller");
                        served += 1;
                    }
                    Err(TryRecvError::Empty) => spin_loop(),
                    Err(TryRecvError::Disconnected) => panic!("the client ended early"),
                }
            }
        });
        let client = scope.spawn(move || {
            pin(places, 0);
            let begin = Instant::now();
            let (mut sent, mut answered) = (0, 0);
            while answered < TRIPS {
                if sent < TRIPS && sent - answered < WINDOW {
                    ask.try_send((FROM, read())).expect("the window is smaller");
                    sent += 1;
                }
                match answers.try_recv() {
                    Ok(_) => answered += 1,
                    Err(_) => spin_loop(),
                }
            }
            TRIPS as f64 / begin.elapsed().as_secs_f64()
        });
        client.join().expect("the client ends")
    })
}

fn two_threads(_: &mut Criterion) {
    let cores = available_cores().expect("the kernel says where this process may run");
    let pinned = cores.first_chunk::<2>().copied();
    println!("two threads, {WINDOW} round trips under way, medians of {ROUNDS} x {TRIPS} in turn:");
    for (name, places) in [("not pinned", None), ("pinned", pinned)] {
        if name == "pinned" && places.is_none() {
            println!("  pinned: left out, this process may run on one core only");
            continue;
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            ours.push(mesh_between_threads(places));
            theirs.push(channels_between_threads(places));
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        println!(
            "  {name}: mesh {:.2} M messages/s, sync_channel {:.2} M messages/s, ratio {:.2}",
            2.0 * ours / 1e6,
            2.0 * theirs / 1e6,
            ours / theirs
        );
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = one_thread, two_threads
}
criterion_main!(benches);
