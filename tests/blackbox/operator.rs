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

/// Pauses the server and lets it go on until the load is over. It goes on in the end.
pub fn pause_and_release(
    nodes: &Nodes,
    recorder: &Recorder,
    server: SocketAddr,
    mut draw: Stream,
    is_over: &AtomicBool,
) {
    let mut operator = Operator { nodes, recorder, admins: Client::new(nodes.admins()) };
    while !is_over.load(Ordering::SeqCst) {
        wait(draw.range(2_000, 8_000), is_over);
        let (from, acknowledged) = operator.order(server, &mut draw, "PUT", r#"{"paused":true}"#);
        wait(draw.range(1_000, 8_000), is_over);
        let (released, until) = operator.order(server, &mut draw, "DELETE", "");
        let pause = RulePause { from, acknowledged, released, until };
        recorder.with(|history| history.rule_pauses.push(pause));
    }
}

struct Operator<'a> {
    nodes: &'a Nodes,
    recorder: &'a Recorder,
    admins: Client,
}

impl Operator<'_> {
    /// Gives an order to one node after the other until one says that it is in force. Returns when
    /// it was first sent, and when it was answered.
    fn order(
        &mut self,
        server: SocketAddr,
        draw: &mut Stream,
        method: &str,
        body: &str,
    ) -> (Ns, Ns) {
        let (sent, deadline) = (self.recorder.clock.now(), Instant::now() + PATIENCE);
        while Instant::now() < deadline {
            let serving = self.nodes.serving();
            if !serving.is_empty() {
                let via = draw.pick(&serving);
                let path = format!("/destinations/{server}");
                let answered = self.admins.order(via, method, &path, body);
                if answered.is_ok_and(|answer| answer.status == 200) {
                    return (sent, self.recorder.clock.now());
                }
            }
            thread::sleep(Duration::from_millis(100));
        }
        let now = self.recorder.clock.now();
        let what = format!("{method} of a rule was answered by no node");
        self.recorder.with(|history| history.troubles.push((now, what)));
        (sent, now)
    }
}

fn wait(ms: u64, is_over: &AtomicBool) {
    let until = Instant::now() + Duration::from_millis(ms);
    while Instant::now() < until && !is_over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(20));
    }
}
