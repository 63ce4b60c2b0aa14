//! What the original's `wait-sync` asks over SNMP, as the machine's SNMP daemon asks its subagents.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use super::{Node, PATIENCE, request, until};

const OBJECT: [u32; 9] = [1, 2, 826, 0, 1, 1_578_918, 9, 10, 1];
const REGISTER: u8 = 3;
const GET: u8 = 5;
const RESPONSE: u8 = 18;
const GAUGE: u16 = 66;

/// The daemon's end of a session.
struct Daemon(UnixStream);

fn pdu(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1, kind, 0x10, 0];
    for word in [7, 0, 1, payload.len() as u32] {
        bytes.extend_from_slice(&u32::to_be_bytes(word));
    }
    bytes.extend_from_slice(payload);
    bytes
}

fn name(parts: &[u32]) -> Vec<u8> {
    let mut bytes = vec![parts.len() as u8, 0, 0, 0];
    parts.iter().for_each(|part| bytes.extend_from_slice(&part.to_be_bytes()));
    bytes
}

impl Daemon {
    /// Takes a subagent, and its object.
    fn accept(listener: &UnixListener) -> Daemon {
        listener.set_nonblocking(true).expect("a socket");
        let stream = until("a subagent", || listener.accept().ok().map(|(stream, _)| stream));
        stream.set_nonblocking(false).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut daemon = Daemon(stream);
        let (kind, _) = daemon.hear();
        assert_eq!(kind, 1, "a session is opened");
        daemon.say(RESPONSE, &[0; 8]);
        let (kind, payload) = daemon.hear();
        assert_eq!((kind, &payload[4..]), (REGISTER, &name(&OBJECT)[..]));
        daemon.say(RESPONSE, &[0; 8]);
        daemon
    }

    fn say(&mut self, kind: u8, payload: &[u8]) {
        self.0.write_all(&pdu(kind, payload)).expect("the node listens");
    }

    fn hear(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; 20];
        self.0.read_exact(&mut header).expect("a header");
        assert_eq!(header[2] & 0x10, 0x10, "network byte order");
        let bytes = u32::from_be_bytes(header[16..].try_into().expect("four"));
        let mut payload = vec![0; bytes as usize];
        self.0.read_exact(&mut payload).expect("a payload");
        (header[1], payload)
    }

    /// How much is left, as `snmpget` would print it.
    fn left(&mut self) -> u32 {
        let instance = name(&[&OBJECT[..], &[0]].concat());
        self.say(GET, &[&instance[..], &name(&[])].concat());
        let (kind, payload) = self.hear();
        assert_eq!((kind, &payload[4..8]), (RESPONSE, &[0; 4][..]), "no error");
        assert_eq!(payload[8..10], GAUGE.to_be_bytes());
        assert_eq!(payload[12..12 + instance.len()], instance[..]);
        u32::from_be_bytes(payload[12 + instance.len()..].try_into().expect("a number"))
    }

    fn await_nothing_left(&mut self) {
        until("nothing left", || {
            std::thread::sleep(Duration::from_millis(20));
            (self.left() == 0).then_some(())
        });
    }
}

/// The original's package restarts one node after the other, and waits between them until nothing
/// is left. Whoever hears too early that nothing is left ends the second copy of a timer, too.
#[test]
fn scripts_hear_when_a_resynchronisation_is_over() {
    const TIMERS: usize = 300;
    let (mut one, mut two) = (Node::new(18), Node::new(19));
    let listener = UnixListener::bind(two.file("agentx")).expect("a socket in the folder");
    let socket = two.file("agentx").display().to_string();
    two.write("shared", &format!("[admin]\nagentx_socket = {socket}\n"));
    one.write_members(&[&one, &two]);
    two.write_members(&[&one, &two]);
    one.start();
    two.start();
    one.await_peers_alive(1.0);
    two.await_peers_alive(1.0);
    let mut daemon = Daemon::accept(&listener);
    daemon.await_nothing_left();
    let timer = "{\"timing\":{\"interval\":3600},\"callback\":{\"http\":{\"uri\":\
                 \"http://127.0.0.1:9/x\",\"opaque\":\"\"}}}";
    for _ in 0..TIMERS {
        let created = request(one.bind, "POST", "/timers", timer).expect("an answer");
        assert_eq!(created.status, 200, "{created:?}");
    }
    until("all copies", || (two.metric("chronos_timers") == Some(TIMERS as f64)).then_some(()));
    let mut killed = two.process.take().expect("it runs");
    killed.kill().expect("a child can be killed");
    killed.wait().expect("it ends");
    two.start();
    let mut daemon = Daemon::accept(&listener);
    daemon.await_nothing_left();
    assert_eq!(two.metric("chronos_timers"), Some(TIMERS as f64), "{}", two.logged());
    // As `service chronos resync` and `wait-sync`.
    two.signal("USR1");
    two.await_log("SIGUSR1: comparing all timers", 1);
    daemon.await_nothing_left();
    // The daemon is started again.
    drop(daemon);
    Daemon::accept(&listener).left();
    assert!(one.end().success() && two.end().success(), "{}", two.logged());
}
