//! What signals do to this process before and beside the control thread's handlers.
//!
//! The default of most signals is to end the process. Between the start and the moment at which
//! handlers are installed, and for signals that mean nothing to a node, that would be an end
//! without a word.

use std::mem::MaybeUninit;

/// Signals that a running node answers to. Managers send them as soon as they know its number.
const ANSWERED: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];
/// Signals that nobody sends to a node on purpose, and that would end it. The real-time signals
/// belong to them. A write beyond the largest size of a file fails as well, without its signal.
const MEANINGLESS: [libc::c_int; 7] = [
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXFSZ,
];

fn held() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call writes the whole set, which outlives it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: written by the call above.
    let mut set = unsafe { set.assume_init() };
    for signal in ANSWERED.into_iter().chain(meaningless()) {
        // SAFETY: the call changes the set alone, which outlives it.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}

fn meaningless() -> impl Iterator<Item = libc::c_int> {
    MEANINGLESS.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX())
}

fn mask(how: libc::c_int) {
    let set = held();
    // SAFETY: the kernel reads the set during the call. An error means that `how` is unknown.
    unsafe { libc::pthread_sigmask(how, &set, std::ptr::null_mut()) };
}

/// Keeps the signals that a node answers to, and those that mean nothing to it, until
/// [`let_signals_through`]. Called first, by the only thread. Threads that are started meanwhile
/// keep them for good.
pub fn hold_signals() {
    mask(libc::SIG_BLOCK);
}

/// Delivers what was held and what comes. Called when handlers are installed, or by a process that
/// is no node.
pub fn let_signals_through() {
    mask(libc::SIG_UNBLOCK);
}

/// Makes the process ignore signals that mean nothing to it. A handler that somebody has installed,
/// such as a profiler, stays.
pub fn ignore_meaningless_signals() {
    for signal in meaningless() {
        // SAFETY: all bytes zero are a valid `sigaction`: the default, no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes what is installed during the call and keeps no pointer.
        let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
        if asked == 0 && action.sa_sigaction == libc::SIG_DFL {
            action.sa_sigaction = libc::SIG_IGN;
            // SAFETY: the kernel reads the action during the call; it names no function.
            unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        }
    }
}
