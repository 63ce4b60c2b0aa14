//! An operator who pauses a callback server now and then.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kit::simulator::random::Stream;

use super::client::Client;
use super::history::{Ns, Recorder, RulePause};
use super::nodes::Nodes;

/// How long an order is repeated until it is answered.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pauses the server, at one site or at all, and lets it go on until the load is over. It goes on in
/// the end.
pub fn pause_and_release(
    nodes: &Nodes,
    recorder: &Recorder,
    server: SocketAddr,
    mut draw: Stream,
    is_over: &AtomicBool,
) {
    let path = format!("/destinations/{server}");
    let mut operator = Operator { nodes, recorder, admins: Client::new(nodes.admins()), path };
    let all: Vec<usize> = (0..nodes.layout().sites).collect();
    while !is_over.load(Ordering::SeqCst) {
        wait(draw.range(2_000, 8_000), is_over);
        let is_at_one = all.len() > 1 && draw.chance(50);
        let sites = if is_at_one { vec![draw.pick(&all)] } else { all.clone() };
        let pause = |site: &usize| operator.order(*site, &mut draw, Order::Pause);
        let paused: Vec<_> = sites.iter().map(pause).collect();
        wait(draw.range(1_000, 8_000), is_over);
        for (site, (from, acknowledged)) in sites.into_iter().zip(paused) {
            let (released, until) = operator.order(site, &mut draw, Order::Release);
            let pause = RulePause { site, from, acknowledged, released, until };
            recorder.with(|history| history.rule_pauses.push(pause));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Pause,
    Release,
}

struct Operator<'a> {
    nodes: &'a Nodes,
    recorder: &'a Recorder,
    admins: Client,
    path: String,
}

impl Operator<'_> {
    /// Gives an order to one node of a site after the other until it is in force. Returns when it
    /// was first sent, and when it was answered.
    fn order(&mut self, site: usize, draw: &mut Stream, order: Order) -> (Ns, Ns) {
        let (sent, deadline) = (self.recorder.clock.now(), Instant::now() + PATIENCE);
        while Instant::now() < deadline {
            let mut serving = self.nodes.serving_of(site);
            let first = draw.range(0, serving.len().saturating_sub(1) as u64) as usize;
            serving.rotate_left(first);
            let mut answers = serving.iter().map(|via| self.ask(*via, order));
            // Nodes that have lost their disks know of no rule.
            let is_unknown = |told: &Option<u16>| *told == Some(404);
            let told = answers.find(|told| !is_unknown(told));
            let is_gone = order == Order::Release && told.is_none() && !serving.is_empty();
            if told == Some(Some(200)) || is_gone {
                return (sent, self.recorder.clock.now());
            }
            thread::sleep(Duration::from_millis(100));
        }
        let now = self.recorder.clock.now();
        let what = format!("{order:?} of the server was answered by no node of site {site}");
        self.recorder.with(|history| history.troubles.push((now, what)));
        (sent, now)
    }

    fn ask(&mut self, via: usize, order: Order) -> Option<u16> {
        let (method, body) = match order {
            Order::Pause => ("PUT", r#"{"paused":true}"#),
            Order::Release => ("DELETE", ""),
        };
        let answered = self.admins.order(via, method, &self.path, body);
        answered.ok().map(|answer| answer.status)
    }
}

fn wait(ms: u64, is_over: &AtomicBool) {
    let until = Instant::now() + Duration::from_millis(ms);
    while Instant::now() < until && !is_over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(20));
    }
}
