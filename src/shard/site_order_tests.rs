//! Who pops first. Clients write one timer through both sites at almost the same time, and what
//! nodes tell each other arrives in any order. When all is told, every holder names the same
//! version, and for that version the same sites and ranks in the same order: one node pops.

use super::*;
use crate::base::ids::mix;
use crate::base::ranked::Sites as SiteList;
use crate::timer::definition::encode_with_attributes;
use crate::timer::naming::{digest_of, id_of_key, id_of_name};
use crate::timer::version::StateKey;
use crate::wire::attributes::Attributes;

const TRIALS: u64 = 500;

/// What the holders of one state must agree on.
type Order = (StateKey, SiteList, u8, u64, u64);

/// Numbers that follow from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.0) % bound as u64) as usize
    }
}

impl Sites {
    /// Lets one message or result arrive, whichever is drawn. False: none is under way.
    fn pass_one(&mut self, draw: &mut Draw) -> bool {
        let Some(under_way) = self.under_way.as_mut().filter(|it| !it.is_empty()) else {
            return false;
        };
        let sent = under_way.swap_remove(draw.below(under_way.len()));
        self.arrive(sent);
        true
    }

    /// What each live holder on the list of a timer believes of it. Who is off the list keeps it
    /// until those have it, and asks them before it would pop.
    fn orders(&self, id: TimerId) -> Vec<(usize, Order, (Replicas, u16))> {
        let holders = self.holders(id).into_iter();
        let order = |node: usize| {
            let records = &self.shards[node].records;
            let record = records.get(self.shards[node].find(id).expect("it holds the timer"));
            let place = records.placement_of(record);
            let numbers = (record.interval_ms, record.repeat_for.get());
            let order = (record.key(), place.sites, place.factor, numbers.0, numbers.1);
            place.own.map(|_| (node, order, (place.replicas, place.actives)))
        };
        holders.filter_map(order).collect()
    }
}

/// One of the writes that clients make, through a node.
fn write(sites: &mut Sites, draw: &mut Draw, (kind, factor): (usize, u8)) {
    let node = draw.below(NODES);
    let (name, digest) = (Some("one"), Some(digest_of(b"body")));
    let attributes = match kind {
        0 => Attributes { once: digest, ..Attributes::default() },
        _ => Attributes { name, ..Attributes::default() },
    };
    let (mut encoded, mut content) = (Vec::new(), Vec::new());
    attributes.write(&mut encoded);
    encode_with_attributes("/pop", &[], (&encoded, b"opaque"), &mut content);
    let definition = Definition {
        interval_ms: 20_000,
        repeat_for_ms: 20_000,
        factor: Some(factor),
        authority: "host:80",
        content: &content,
    };
    let conditional = |condition, definition| {
        let target = Target { id: id_of(kind), factor: None, filter: None };
        Request::Conditional(Conditional { target, condition, definition, action: None })
    };
    let request = match (kind, draw.below(4)) {
        (0, _) => conditional(Condition::Once, Some(definition)),
        (1, _) | (_, 0 | 1) => conditional(Condition::Absent, Some(definition)),
        (_, 2) => conditional(Condition::Present, Some(definition)),
        _ => Request::Update(Target { id: id_of(kind), factor: None, filter: None }, definition),
    };
    sites.handle(node, Event::Request { from: FROM, request });
}

fn id_of(kind: usize) -> TimerId {
    if kind == 0 { id_of_key("", b"one") } else { id_of_name("one") }
}

#[test]
fn all_holders_agree_on_who_pops_first_whatever_is_written_at_once() {
    let mut made = 0;
    for seed in 0..TRIALS {
        let mut draw = Draw(seed);
        let mut sites = Sites::new();
        sites.behind_ms = draw.below(4) as u64;
        sites.run_until(1);
        sites.under_way = Some(Vec::new());
        // With different factors a node may learn only as it is about to pop that it holds none.
        let (kind, factor) = (draw.below(3), 1 + draw.below(2) as u8);
        for _ in 0..2 + draw.below(2) {
            write(&mut sites, &mut draw, (kind, factor));
            for _ in 0..draw.below(8) {
                sites.pass_one(&mut draw);
            }
            sites.now_ms += draw.below(3) as u64;
        }
        while sites.pass_one(&mut draw) {}
        sites.under_way = None;
        let orders = sites.orders(id_of(kind));
        // No write may have been made: the condition of each was that another one was.
        let Some(&(_, first, _)) = orders.first() else { continue };
        made += 1;
        for (node, order, ranks) in &orders {
            assert_eq!(*order, first, "seed {seed}: {orders:#?}");
            let beside = orders.iter().filter(|(other, ..)| other / 2 == node / 2);
            beside.for_each(|(_, _, other)| assert_eq!(ranks, other, "seed {seed}: {orders:#?}"));
        }
        sites.run_until(35);
        assert_eq!(sites.pops.len(), 1, "seed {seed}: {:?}, {orders:#?}", sites.pops);
        sites.audit();
    }
    assert!(made > TRIALS / 2, "{made}");
}

/// A write through the second site, whose clocks are behind, pops before its other holder has said
/// that it knows a later one of the first site. The write is made again, above that one, and its
/// pop is not.
#[test]
fn a_write_that_is_made_again_does_not_make_its_pops_again() {
    let id = id_of_name("one");
    let put = |content, interval_ms| {
        let definition = Definition {
            interval_ms,
            repeat_for_ms: interval_ms,
            factor: Some(2),
            authority: "host:80",
            content,
        };
        Request::Update(Target { id, factor: Some(2), filter: None }, definition)
    };
    let mut content = Vec::new();
    encode_content("/pop", &[], b"opaque", &mut content);
    for seed in 0..20 {
        let mut sites = Sites::new();
        sites.behind_ms = 5_000;
        sites.run_until(6);
        let first = sites.holder(id, 1);
        // The other node of the second site hears of the later write.
        sites.lines[0][1] = Some(first ^ 1);
        sites.under_way = Some(Vec::new());
        sites.handle(0, Event::Request { from: FROM, request: put(&content, 20_000) });
        let site = sites.views[0].connected_sites().iter().next().expect("one other site");
        let under_way = sites.under_way.as_mut().expect("put there");
        let told = under_way.iter().position(|sent| sent.peer == site).expect("it is told");
        let told = under_way.swap_remove(told);
        sites.arrive(told);
        let interval_ms = 50 * (seed % 2);
        sites.handle(first, Event::Request { from: FROM, request: put(&content, interval_ms) });
        sites.run_until(7);
        assert_eq!(sites.pops.len(), 1, "the first holder makes it at once");
        let mut draw = Draw(seed);
        while sites.pass_one(&mut draw) {}
        sites.under_way = None;
        sites.run_until(60);
        assert_eq!(sites.pops.len(), 1, "seed {seed}: {:?}", sites.pops);
        assert!(sites.holders(id).is_empty(), "seed {seed}: the later write is over");
        sites.audit();
    }
}
