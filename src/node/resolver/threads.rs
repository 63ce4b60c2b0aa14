//! Looks up host names of callbacks and peers. [`StaticNames`] may put another name in the place of
//! one, or have its addresses. This module reads the hosts file. The system's resolver, which
//! blocks, looks up all other names on threads of its own. [`Names`] decides what waits for what.

// May panic: indices 3.
// Why it does not: cores 3.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_queue::SegQueue;

use crate::base::ids::{HostId, PeerIndex};
use crate::base::time::MonoNs;
use crate::ring::{Waker, now};

use crate::node::resolver::hosts_file::HostsFile;
use crate::node::resolver::names::{Names, Remembered, Why};
use crate::node::resolver::statics::StaticNames;

/// Most lookups at once, with a thread each. A thread that waits for a name server costs some
/// kilobytes.
pub const LOOKUPS_MAX: usize = 256;
/// Most questions on their way to the sorting thread, which never waits for a name server. A core
/// whose question finds no room asks again with the next callback.
const EVENTS_MAX: usize = 8_192;
/// Most addresses kept of one name.
const ADDRESSES_MAX: usize = 16;
/// For how long in ms an answer is given to all cores that ask for the same name.
const RECENT_MS: u64 = 500;
/// How often in ms the sorting thread looks whether a name has waited for too long, at most.
const LOOK_EVERY_MS: u64 = 100;
const HOSTS_FILE: &str = "/etc/hosts";

/// For whom a core asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A callback host.
    Host(HostId),
    /// A peer.
    Peer(PeerIndex),
}

/// A question of a core.
struct Question {
    core: usize,
    asker: Asker,
    name: String,
    port: u16,
}

/// What a core is told of a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// These addresses, with the port of the question. None: the name could not be resolved.
    Addresses(Vec<SocketAddr>),
    /// Nothing: this node has no place for the lookup, because too many other names hang.
    Lacking,
}

impl Found {
    /// The addresses, if there are any.
    pub fn addresses(&self) -> &[SocketAddr] {
        match self {
            Found::Addresses(addresses) => addresses,
            Found::Lacking => &[],
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Resolved {
    /// For whom the core asked.
    pub asker: Asker,
    /// The name that was asked for. The number of a host may belong to another host since.
    pub name: String,
    /// What was found.
    pub found: Found,
}

/// What the sorting thread is told.
enum Event {
    Asked(Question),
    LookedUp(Arc<str>, Vec<IpAddr>),
    Statics(Arc<StaticNames>),
    /// The last handle is gone.
    End,
}

/// Answers for one core. The core's open questions bound them: one per host and peer.
struct Inbox {
    answers: SegQueue<Resolved>,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// What all handles share.
struct Shared {
    events: SyncSender<Event>,
    inboxes: Arc<[Inbox]>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The send fails when the thread is gone, which is what the event asks for.
        let _ = self.events.send(Event::End);
    }
}

/// The resolver of a node. Each core has one handle.
#[derive(Clone)]
pub struct Resolver {
    core: usize,
    shared: Arc<Shared>,
}

/// Blocks until the addresses of a name are found. Returns none if there are none.
pub(crate) type Lookup = Arc<dyn Fn(&str) -> Vec<IpAddr> + Send + Sync>;

impl Resolver {
    /// Starts the resolver and returns one handle per core, in the order of their wakers. At most
    /// `lookups_max` names are looked up at once. The threads end with the last handle.
    pub fn start(
        wakers: Vec<Waker>,
        lookups_max: usize,
        statics: Arc<StaticNames>,
    ) -> std::io::Result<Vec<Resolver>> {
        let wakes = wakers.into_iter().map(|waker| Box::new(move || waker.wake()) as Box<_>);
        let resolvers = Self::start_with(wakes.collect(), lookups_max, Arc::new(look_up))?;
        resolvers.iter().take(1).for_each(|first| first.set_statics(Arc::clone(&statics)));
        Ok(resolvers)
    }

    pub(crate) fn start_with(
        wakes: Vec<Box<dyn Fn() + Send + Sync>>,
        lookups_max: usize,
        lookup: Lookup,
    ) -> std::io::Result<Vec<Resolver>> {
        let cores = wakes.len();
        let inboxes: Arc<[_]> =
            wakes.into_iter().map(|wake| Inbox { answers: SegQueue::new(), wake }).collect();
        let (events, taken) = sync_channel(EVENTS_MAX);
        let (jobs, jobs_taken) = channel();
        let mut sorter = Sorter {
            names: Names::new(lookups_max),
            recent: Remembered::new(),
            statics: Arc::default(),
            hosts_file: HostsFile::new(HOSTS_FILE),
            inboxes: inboxes.clone(),
            jobs,
            jobs_taken: Arc::new(Mutex::new(jobs_taken)),
            events: events.clone(),
            lookup,
            running: 0,
            threads: 0,
        };
        sorter.add_thread()?;
        let thread = thread::Builder::new().name("chronos-names".to_owned());
        thread.spawn(move || sorter.run(&taken))?;
        let shared = Arc::new(Shared { events, inboxes });
        Ok((0..cores).map(|core| Resolver { core, shared: shared.clone() }).collect())
    }

    /// Asks for a name. The answer comes later from [`Resolver::next`]. Returns `false` when too
    /// many questions wait.
    pub fn ask(&self, asker: Asker, name: &str, port: u16) -> bool {
        let question = Question { core: self.core, asker, name: name.to_owned(), port };
        self.shared.events.try_send(Event::Asked(question)).is_ok()
    }

    /// Sets what questions from now on are answered by. Returns when the sorting thread has room
    /// for the order, which never waits for a name server.
    pub fn set_statics(&self, statics: Arc<StaticNames>) {
        // The send fails when the thread is gone, and then nobody asks.
        let _ = self.shared.events.send(Event::Statics(statics));
    }

    /// Returns the next answer for this core.
    pub fn next(&self) -> Option<Resolved> {
        self.shared.inboxes[self.core].answers.pop()
    }
}

/// The thread that takes all questions and never waits for a name server.
struct Sorter {
    names: Names<Question>,
    /// Addresses that were found, and when.
    recent: Remembered<(MonoNs, Vec<IpAddr>)>,
    statics: Arc<StaticNames>,
    hosts_file: HostsFile,
    inboxes: Arc<[Inbox]>,
    jobs: Sender<Arc<str>>,
    jobs_taken: Arc<Mutex<Receiver<Arc<str>>>>,
    events: SyncSender<Event>,
    lookup: Lookup,
    /// How many names were given to threads and are not looked up yet.
    running: usize,
    threads: usize,
}

impl Sorter {
    fn run(&mut self, taken: &Receiver<Event>) {
        loop {
            // Names that wait are looked at now and then; with none the thread sleeps.
            let event = match self.names.next_wake() {
                Some(_) => taken.recv_timeout(Duration::from_millis(LOOK_EVERY_MS)),
                None => taken.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let now = now().mono;
            let goes_on = match event {
                Ok(event) => self.take(now, event),
                Err(error) => error == RecvTimeoutError::Timeout,
            };
            if !goes_on {
                return;
            }
            self.names.expire(now);
            while let Some((question, why)) = self.names.refused() {
                match why {
                    Why::Failed => self.answer(question, &[]),
                    Why::Lack => self.tell(question, Found::Lacking),
                }
            }
            while let Some(name) = self.names.next() {
                self.begin(name);
            }
        }
    }

    /// Takes an event. Returns `false` at the end.
    fn take(&mut self, now: MonoNs, event: Event) -> bool {
        match event {
            Event::Asked(question) => {
                let asked = question.name.to_ascii_lowercase();
                let statics = Arc::clone(&self.statics);
                let name = statics.target(&asked);
                if let Some(addresses) = statics.addresses(name) {
                    self.answer(question, addresses);
                } else if let Some(addresses) = self.hosts_file.find(now, name) {
                    let addresses = addresses.to_vec();
                    self.answer(question, &addresses);
                } else if let Some((at, addresses)) = self.recent.get(name)
                    && now < at.plus_ms(RECENT_MS)
                {
                    let addresses = addresses.clone();
                    self.answer(question, &addresses);
                } else {
                    let is_trusted = matches!(question.asker, Asker::Peer(_));
                    self.names.ask(now, name, is_trusted, question);
                }
            }
            Event::Statics(statics) => self.statics = statics,
            Event::LookedUp(name, addresses) => {
                self.running -= 1;
                if !addresses.is_empty() {
                    self.recent.insert(Arc::clone(&name), (now, addresses.clone()));
                }
                for question in self.names.looked_up(now, &name, !addresses.is_empty()) {
                    self.answer(question, &addresses);
                }
            }
            Event::End => return false,
        }
        true
    }

    fn answer(&self, question: Question, addresses: &[IpAddr]) {
        let addresses = addresses.iter().take(ADDRESSES_MAX);
        let addresses = addresses.map(|address| SocketAddr::new(*address, question.port));
        let found = Found::Addresses(addresses.collect());
        self.tell(question, found);
    }

    fn tell(&self, question: Question, found: Found) {
        let Question { core, asker, name, .. } = question;
        self.inboxes[core].answers.push(Resolved { asker, name, found });
        (self.inboxes[core].wake)();
    }

    fn begin(&mut self, name: Arc<str>) {
        self.running += 1;
        if self.running > self.threads {
            // If no further thread can be had, the name waits for the threads that there are.
            let _ = self.add_thread();
        }
        // The send never fails, because this thread has the other end, too.
        let _ = self.jobs.send(name);
    }

    /// Starts one more thread that looks names up. The thread ends with this one.
    fn add_thread(&mut self) -> std::io::Result<()> {
        let (jobs, events) = (self.jobs_taken.clone(), self.events.clone());
        let lookup = self.lookup.clone();
        let thread = thread::Builder::new().name("chronos-lookup".to_owned());
        thread.spawn(move || {
            loop {
                // The lock is held only while a thread waits for the next name, never during a
                // lookup.
                let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(name) = job else { return };
                let addresses = lookup(&name);
                if events.send(Event::LookedUp(name, addresses)).is_err() {
                    return;
                }
            }
        })?;
        self.threads += 1;
        Ok(())
    }
}

fn look_up(name: &str) -> Vec<IpAddr> {
    let found = (name, 0).to_socket_addrs().into_iter().flatten();
    found.map(|address| address.ip()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::time::{Duration, Instant};

    use super::*;

    /// Names below `silent` hang until the gate opens.
    #[derive(Default)]
    struct Gate {
        is_open: Mutex<bool>,
        opened: Condvar,
    }

    impl Gate {
        fn open(&self) {
            *self.is_open.lock().expect("no panic") = true;
            self.opened.notify_all();
        }

        fn look_up(&self, name: &str) -> Vec<IpAddr> {
            if name.ends_with(".silent") {
                let is_open = self.is_open.lock().expect("no panic");
                let _open = self.opened.wait_while(is_open, |is_open| !*is_open).expect("no panic");
                return Vec::new();
            }
            vec![IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])]
        }
    }

    fn start(cores: usize) -> (Vec<Resolver>, Arc<Gate>) {
        let gate = Arc::new(Gate::default());
        let lookup = gate.clone();
        let wakes = (0..cores).map(|_| Box::new(|| ()) as Box<dyn Fn() + Send + Sync>).collect();
        let lookup: Lookup = Arc::new(move |name: &str| lookup.look_up(name));
        (Resolver::start_with(wakes, 32, lookup).expect("threads can be started"), gate)
    }

    fn answer(resolver: &Resolver) -> Resolved {
        let began = Instant::now();
        loop {
            if let Some(resolved) = resolver.next() {
                return resolved;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "no answer");
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn ask(resolver: &Resolver, host: u32, name: &str) -> Resolved {
        assert!(resolver.ask(Asker::Host(HostId(host)), name, 80));
        let resolved = answer(resolver);
        assert_eq!((resolved.asker, &*resolved.name), (Asker::Host(HostId(host)), name));
        resolved
    }

    #[test]
    fn names_that_hang_hold_up_no_other() {
        const SILENT: u32 = 4_000;
        let (resolvers, gate) = start(2);
        let [one, other] = &resolvers[..] else { panic!("two cores") };
        ask(one, 1, "known.example");
        for number in 0..SILENT {
            let (asker, name) = (Asker::Host(HostId(number)), format!("n{number}.all.silent"));
            while !other.ask(asker, &name, 80) {
                thread::yield_now();
            }
        }
        for resolver in [one, other] {
            assert!(ask(resolver, 1, "LocalHost").found.addresses()[0].ip().is_loopback());
            let resolved = ask(resolver, 2, "known.example");
            let expected = ["10.0.0.1:80", "10.0.0.2:80"].map(|text| text.parse().expect("it is"));
            assert_eq!(resolved.found.addresses(), expected);
            assert_eq!(ask(resolver, 3, "New.example.").found.addresses().len(), 2);
        }
        gate.open();
        for _ in 0..SILENT {
            assert_eq!(answer(other).found.addresses(), []);
        }
        assert_eq!(ask(other, 0, "N0.all.silent").found.addresses(), [], "refused at once");
        assert!(one.next().is_none());
    }

    #[test]
    fn static_names_come_first_and_the_question_keeps_its_name() {
        let (resolvers, gate) = start(1);
        let resolver = &resolvers[0];
        assert_eq!(ask(resolver, 1, "sprout.example").found.addresses().len(), 2);
        let mut names = StaticNames::default();
        names.set_target("sprout.example", "here.silent");
        names.set_target("ralf.example", "localhost");
        names.set_addresses("here.silent", vec![[10, 9, 9, 9].into()]);
        resolver.set_statics(Arc::new(names));
        let expected = ["10.9.9.9:80".parse().expect("it is")];
        assert_eq!(ask(resolver, 1, "Sprout.example").found.addresses(), expected);
        assert!(ask(resolver, 2, "ralf.example").found.addresses()[0].ip().is_loopback());
        resolver.set_statics(Arc::default());
        assert_eq!(ask(resolver, 1, "sprout.example").found.addresses().len(), 2);
        gate.open();
    }

    #[test]
    fn threads_end_with_the_last_handle() {
        let (resolvers, gate) = start(1);
        ask(&resolvers[0], 1, "a.example");
        let held = Arc::downgrade(&gate);
        drop((resolvers, gate));
        let began = Instant::now();
        while held.strong_count() > 0 {
            assert!(began.elapsed() < Duration::from_secs(30), "a thread goes on");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
