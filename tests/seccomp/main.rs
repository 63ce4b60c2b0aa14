//! The profile for containers, `tuning/seccomp.json`: under it the binary does all that it does,
//! and what it has no use for is refused. The kernel gets the filters that the file means, as from
//! the runtime of a container.

mod node;
mod profile;

use std::collections::BTreeSet;
use std::io::{Error, ErrorKind, Read};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::mpsc::channel;

use kit::callbacks::{Reaction, serve};
use kit::children;
use kit::client::{PATIENCE, request};
use socket2::{Domain, Protocol, Socket, Type};

use node::Node;
use profile::{Contained, Profile};

/// What gets a process out of a container, or further into the machine.
const FORBIDDEN: &str = "acct add_key bpf chroot clock_adjtime clock_settime delete_module fanotify_init \
     finit_module fsconfig fsmount fsopen init_module ioperm iopl kcmp kexec_file_load kexec_load \
     keyctl lookup_dcookie mknod mknodat mount mount_setattr move_mount name_to_handle_at nfsservctl \
     open_by_handle_at open_tree perf_event_open personality pidfd_getfd pidfd_open pivot_root \
     process_madvise process_vm_readv process_vm_writev ptrace quotactl reboot request_key setdomainname \
     sethostname setns settimeofday swapoff swapon syslog umount umount2 unshare userfaultfd vhangup \
     kill execveat fork vfork memfd_create";

#[test]
fn the_profile_allows_rings_and_little_else() {
    let profile = Profile::read();
    let allowed = || profile.syscalls.iter().filter(|entry| entry.allows());
    let names: BTreeSet<&str> = allowed().flat_map(|it| &it.names).map(String::as_str).collect();
    for ring in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        assert!(names.contains(ring), "{ring}");
    }
    let found: Vec<&str> =
        FORBIDDEN.split_whitespace().filter(|name| names.contains(name)).collect();
    assert_eq!(found, Vec::<&str>::new(), "the node has no use for them");
    assert!(names.len() < 150, "{} calls: more than a third of all", names.len());
    assert!(profile.syscalls.iter().all(|entry| !entry.comment.is_empty()), "why?");
}

#[test]
fn what_the_node_has_no_use_for_is_refused() {
    let contained = Contained::new();
    // AF_ALG: anybody may have such a socket where the kernel has the family, and it has been a way
    // into kernels.
    let alg = || Socket::new(Domain::from(38), Type::from(5), None::<Protocol>).map(drop);
    let is_refused = |result: Result<(), Error>| {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    assert!(is_refused(contained.run(alg)));
    assert!(is_refused(contained.run(|| std::os::unix::fs::chroot("/"))));
    for words in [
        &["unshare", "--user", "true"][..],
        &["unshare", "--net", "true"],
        &["mount", "-t", "tmpfs", "none", "/mnt"],
        &["nsenter", "--net=/proc/self/ns/net", "true"],
    ] {
        let mut command = children::command(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        let mut process = contained.spawn(command);
        let mut told = String::new();
        process.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
        let status = process.wait().expect("it ends");
        assert!(!status.success(), "{words:?} did it");
        let is_told = ["not permitted", "permission denied", "must be superuser"];
        let told = told.to_lowercase();
        assert!(is_told.iter().any(|reason| told.contains(reason)), "{words:?}: {told}");
    }
    // The thread goes on to start what may be started.
    let mut command = children::command("true");
    command.stdin(Stdio::null());
    assert!(contained.spawn(command).wait().expect("it ends").success());
}

#[test]
fn a_node_does_all_that_nodes_do_under_the_profile() {
    let (came, comes) = channel();
    let (sink, _) = serve(SocketAddr::from(([127, 0, 0, 1], 0)), move |callback| {
        let _ = came.send((callback.path.clone(), callback.body.clone()));
        Reaction::OK
    });
    let timer = |path: &str, interval_s: u32| {
        format!(
            "{{\"timing\":{{\"interval\":{interval_s}}},\"callback\":{{\"http\":{{\"uri\":\
             \"http://localhost:{}/{path}\",\"opaque\":\"{path}\"}}}}}}",
            sink.port()
        )
    };
    let folder = tempfile::tempdir().expect("a folder");
    let contained = Contained::new();
    let setting = node::Setting::new(folder.path(), &contained);

    let node = Node::start(&contained, &setting);
    let made = request(node.plain, "POST", "/timers", &timer("first", 1)).expect("an answer");
    made.location();
    let popped = comes.recv_timeout(PATIENCE).expect("it pops");
    assert_eq!(popped, ("/first".to_owned(), b"first".to_vec()));
    setting.create_over_tls(&timer("later", 4));
    let stamp = request(node.plain, "POST", "/timestamps", "").expect("an answer");
    assert_eq!(stamp.status, 200, "{stamp:?}");
    for path in ["/status", "/metrics", "/cluster", "/healthz"] {
        let answer = request(node.admin, "GET", path, "").expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
    node.signal("HUP", "\"reloaded: the members are the same\"");
    setting.change_secrets();
    node.await_log("the secrets that callbacks are signed with have changed");
    node.signal("USR1", "comparing all timers");
    let backup = folder.path().join("backup");
    let admin = node.admin.to_string();
    let words = ["backup", "--admin", &admin, backup.to_str().expect("a plain path")];
    setting.tool(&contained, &words);
    assert!(backup.join("node.toml").is_file());
    node.stop();

    // What was not popped comes from the journal.
    let node = Node::start(&contained, &setting);
    let popped = comes.recv_timeout(PATIENCE).expect("it pops");
    assert_eq!(popped, ("/later".to_owned(), b"later".to_vec()));
    node.stop();
}
