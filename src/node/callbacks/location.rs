//! Where a callback host is: one address, or a name whose addresses the resolver finds.
//!
//! - The system's resolver tells no lifetime of an answer; the caches that it asks keep it. So a
//!   name is asked for again in the background every `callbacks.resolve_ttl_ms` while callbacks go
//!   there, and at once when an attempt there fails without an answer, at most once a second.
//! - A name that no longer resolves keeps its last addresses: an old address is better than none.

// May panic: indices 1.
// Why it does not: fixed 1.

use std::net::SocketAddr;

use crate::base::ids::HostId;
use crate::base::limits::CallbackLimits;
use crate::base::time::MonoNs;
use crate::node::callbacks::policy::{Denial, Destinations};
use crate::node::resolver::threads::{Asker, Found, Resolver};
use crate::wire::callback_uri::Host;

/// Where the host of a lane is.
#[derive(Debug)]
pub(super) enum Location {
    /// The authority has an IP address.
    Fixed(SocketAddr),
    /// The authority has a name.
    Named(Named),
}

/// A name and what is known of it.
#[derive(Debug)]
pub(super) struct Named {
    name: String,
    port: u16,
    addresses: Vec<SocketAddr>,
    /// When the resolver was last asked for the name.
    asked: Option<MonoNs>,
    /// Whether the resolver still owes the answer.
    is_open: bool,
    /// Counts through the addresses.
    next: usize,
}

/// Where to connect to.
pub(super) enum Next {
    Address(SocketAddr),
    /// The resolver has been asked, and its answer is awaited.
    Asked,
    /// The resolver knows no address.
    Nowhere,
    /// The resolver takes no more questions.
    Lacking,
    /// No callback may go to any of the addresses.
    Denied(Denial),
}

impl Location {
    pub fn of(host: Host<'_>, port: u16) -> Self {
        match host {
            Host::Address(address) => Location::Fixed(SocketAddr::new(address, port)),
            Host::Name(name) => Location::Named(Named {
                name: name.to_owned(),
                port,
                addresses: Vec::new(),
                asked: None,
                is_open: false,
                next: 0,
            }),
        }
    }

    /// How many addresses of the host are known.
    pub fn addresses(&self) -> usize {
        match self {
            Location::Fixed(_) => 1,
            Location::Named(named) => named.addresses.len(),
        }
    }

    /// Forgets the addresses of a name, which may be others now.
    pub fn forget(&mut self) {
        if let Location::Named(named) = self {
            named.addresses.clear();
            named.asked = None;
        }
    }

    /// Asks for the name in the background, if it was asked for longer ago than this.
    #[inline]
    pub fn ask_if_old(&mut self, host: HostId, now: MonoNs, resolver: &Resolver, fresh_ms: u64) {
        if let Location::Named(named) = self
            && !named.is_fresh(now, fresh_ms)
        {
            named.ask(host, now, resolver);
        }
    }

    /// Takes the resolver's answer. Returns whether all known addresses are gone and there are
    /// others. `None`: another name was asked for.
    pub fn found(&mut self, asked_for: &str, found: &Found) -> Option<bool> {
        let Location::Named(named) = self else { return None };
        if named.name != asked_for {
            return None;
        }
        named.is_open = false;
        let Found::Addresses(found) = found else {
            if named.addresses.is_empty() {
                named.asked = None;
            }
            return Some(false);
        };
        if found.is_empty() {
            return Some(false);
        }
        let former = std::mem::replace(&mut named.addresses, found.clone());
        Some(!former.is_empty() && !former.iter().any(|address| found.contains(address)))
    }

    /// Returns the address for the next connection, to which a callback may go. The addresses of a
    /// name take turns. When the answer of the resolver is too old, the resolver is asked again in
    /// the background.
    pub fn next(
        &mut self,
        host: HostId,
        now: MonoNs,
        resolver: &Resolver,
        limits: &CallbackLimits,
        destinations: &Destinations,
    ) -> Next {
        let named = match self {
            Location::Fixed(address) => {
                let judged = destinations.judge(None, *address);
                return judged.map_or_else(Next::Denied, |()| Next::Address(*address));
            }
            Location::Named(named) => named,
        };
        let is_known = !named.addresses.is_empty();
        let ttl_ms = if is_known { limits.resolve_ttl_ms } else { limits.timeout_ms };
        let is_asked = named.is_fresh(now, ttl_ms) || named.ask(host, now, resolver);
        if !is_known {
            return match named.is_open {
                true => Next::Asked,
                false if !is_asked => Next::Lacking,
                false => Next::Nowhere,
            };
        }
        let mut found = Next::Nowhere;
        for _ in 0..named.addresses.len() {
            named.next = (named.next + 1) % named.addresses.len();
            let address = named.addresses[named.next];
            match destinations.judge(Some(&named.name), address) {
                Ok(()) => return Next::Address(address),
                Err(denial) => found = Next::Denied(denial),
            }
        }
        found
    }
}

impl Named {
    fn is_fresh(&self, now: MonoNs, fresh_ms: u64) -> bool {
        self.is_open || self.asked.is_some_and(|asked| now < asked.plus_ms(fresh_ms))
    }

    /// Asks the resolver. Returns `false` if it takes no more questions.
    fn ask(&mut self, host: HostId, now: MonoNs, resolver: &Resolver) -> bool {
        if resolver.ask(Asker::Host(host), &self.name, self.port) {
            (self.asked, self.is_open) = (Some(now), true);
        }
        self.is_open
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::{Arc, Mutex};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    const HOST: HostId = HostId(3);

    fn named() -> Location {
        Location::of(Host::Name("moves.example"), 80)
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// A resolver whose lookups find what stands in the list.
    fn resolver() -> (Resolver, Arc<Mutex<IpAddr>>) {
        let where_it_is = Arc::new(Mutex::new(at("10.0.0.1:80").ip()));
        let found = Arc::clone(&where_it_is);
        let lookup = Arc::new(move |_: &str| vec![*found.lock().expect("no panic")]);
        let started = Resolver::start_with(vec![Box::new(|| ())], 4, lookup);
        let resolver = started.expect("threads can be started").remove(0);
        (resolver, where_it_is)
    }

    fn answer(resolver: &Resolver) -> Found {
        let began = Instant::now();
        loop {
            if let Some(resolved) = resolver.next() {
                return resolved.found;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "no answer");
            sleep(Duration::from_millis(1));
        }
    }

    fn next(location: &mut Location, ms: u64, resolver: &Resolver) -> Next {
        let (limits, everywhere) = (CallbackLimits::default(), Destinations::default());
        location.next(HOST, MonoNs(0).plus_ms(ms), resolver, &limits, &everywhere)
    }

    fn is_open(location: &Location) -> bool {
        matches!(location, Location::Named(named) if named.is_open)
    }

    #[test]
    fn a_host_that_does_not_answer_is_looked_for_at_once_and_found_where_it_has_moved() {
        let (resolver, where_it_is) = resolver();
        let mut location = named();
        assert!(matches!(next(&mut location, 0, &resolver), Next::Asked));
        let found = answer(&resolver);
        assert_eq!(location.found("other.example", &found), None);
        assert_eq!(location.found("moves.example", &found), Some(false), "it was nowhere before");
        let first = at("10.0.0.1:80");
        assert!(matches!(next(&mut location, 1, &resolver), Next::Address(it) if it == first));
        let doubt = |location: &mut Location, ms: u64, fresh_ms: u64| {
            location.ask_if_old(HOST, MonoNs(0).plus_ms(ms), &resolver, fresh_ms);
        };
        doubt(&mut location, 999, 1_000);
        assert!(!is_open(&location), "at most once a second");
        *where_it_is.lock().expect("no panic") = at("10.0.0.2:80").ip();
        let mut ms = 1_000;
        loop {
            doubt(&mut location, ms, 1_000);
            assert!(is_open(&location));
            // The resolver remembers an answer for half a second of the real clock.
            let found = answer(&resolver);
            let has_moved = location.found("moves.example", &found) == Some(true);
            if has_moved {
                break;
            }
            assert!(ms < 1_000_000, "it is never found");
            ms += 1_000;
            sleep(Duration::from_millis(20));
        }
        let second = at("10.0.0.2:80");
        assert!(matches!(next(&mut location, ms, &resolver), Next::Address(it) if it == second));
        assert!(!is_open(&location), "its answer is fresh");
        let ttl_ms = CallbackLimits::default().resolve_ttl_ms;
        assert!(matches!(next(&mut location, ms + ttl_ms, &resolver), Next::Address(_)));
        assert!(is_open(&location), "asked again in the background");
    }

    #[test]
    fn a_lookup_for_which_there_is_no_place_is_asked_for_again() {
        let (resolver, _) = resolver();
        let mut location = named();
        assert!(matches!(next(&mut location, 0, &resolver), Next::Asked));
        answer(&resolver);
        assert_eq!(location.found("moves.example", &Found::Lacking), Some(false));
        assert!(matches!(next(&mut location, 1, &resolver), Next::Asked), "not: it is nowhere");
        // A name that has no address is nowhere for a while.
        location.found("moves.example", &Found::Addresses(Vec::new()));
        assert!(matches!(next(&mut location, 2, &resolver), Next::Nowhere));
    }
}
