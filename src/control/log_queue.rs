//! Lines of the log on their way to standard error, which a thread of its own writes. Whoever reads
//! standard error may stall: a pipe is full then, and a write waits. So nobody else writes there,
//! neither a core nor the control thread. What waits is bounded; a line beyond that is dropped and
//! counted, and the log tells so as soon as it can.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Most lines that wait.
const LINES_MAX: usize = 4_096;
/// Most bytes of lines that wait. A line has some 200, so that 5 000 lines would fit.
const BYTES_MAX: usize = 1 << 20;
/// How long somebody who may wait sleeps before the next look at a full queue.
const LOOK_EVERY: Duration = Duration::from_millis(5);

enum Entry {
    Line(Vec<u8>),
    /// Asks to be told when all lines before it are written. It goes through the queue twice: what
    /// the thread told of dropped lines may stand behind it the first time.
    Flush {
        done: SyncSender<()>,
        is_again: bool,
    },
}

#[derive(Debug, Default)]
struct Counts {
    waiting_bytes: AtomicUsize,
    dropped: AtomicU64,
    /// Whether lines wait for room, in ms: these are the last ones. 0: they do not, or have waited
    /// in vain.
    patience_ms: AtomicU64,
}

/// The way to the thread that writes.
#[derive(Clone, Debug)]
pub(super) struct LogQueue {
    entries: SyncSender<Entry>,
    counts: Arc<Counts>,
}

impl LogQueue {
    /// Starts the thread. `write` writes a line; `tell` logs how many were dropped.
    pub(super) fn start(
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (entries, receiver) = sync_channel(LINES_MAX);
        let queue = Self { entries, counts: Arc::default() };
        let writer = Writer { write, tell, queue: queue.clone(), told: 0, has_written: false };
        let thread = thread::Builder::new().name("chronos-log".into());
        thread.spawn(move || writer.write_all(&receiver))?;
        Ok(queue)
    }

    /// Gives a line to the thread, or drops it. Never waits before [`LogQueue::expect_end`].
    pub(super) fn push(&self, line: &[u8]) {
        if self.offer(line) {
            return;
        }
        match self.counts.patience_ms.load(Ordering::Relaxed) {
            0 => self.drop_line(),
            patience_ms => {
                if !self.push_within(line, Duration::from_millis(patience_ms)) {
                    self.counts.patience_ms.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// Does the same, and waits for room as long as `patience` lasts. False: the line was dropped.
    pub(super) fn push_within(&self, line: &[u8], patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while !self.offer(line) {
            if Instant::now() >= end {
                self.drop_line();
                return false;
            }
            thread::sleep(LOOK_EVERY);
        }
        true
    }

    /// From now on a line waits for room as long as `patience` lasts, until one has waited in vain:
    /// what a process says at its end is worth more than the lines before.
    pub(super) fn expect_end(&self, patience: Duration) {
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.counts.patience_ms.store(patience_ms, Ordering::Relaxed);
    }

    fn drop_line(&self) {
        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when all lines given before are written, or after `patience`.
    pub(super) fn flush(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let (done, is_done) = sync_channel(1);
        let flush = || Entry::Flush { done: done.clone(), is_again: false };
        while self.entries.try_send(flush()).is_err() {
            if Instant::now() >= end {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
        // An error means that the time is over.
        let _ = is_done.recv_timeout(end.saturating_duration_since(Instant::now()));
    }

    /// How many lines were dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    fn offer(&self, line: &[u8]) -> bool {
        let waiting = &self.counts.waiting_bytes;
        let has_room = waiting.fetch_add(line.len(), Ordering::Relaxed) + line.len() <= BYTES_MAX;
        let is_taken = has_room && self.entries.try_send(Entry::Line(line.to_vec())).is_ok();
        if !is_taken {
            waiting.fetch_sub(line.len(), Ordering::Relaxed);
        }
        is_taken
    }
}

/// What the thread holds.
struct Writer<W, T> {
    write: W,
    tell: T,
    queue: LogQueue,
    /// How many of the dropped lines the log has told of.
    told: u64,
    /// Whether the last line could be written. To tell of what is lost would be lost as well.
    has_written: bool,
}

impl<W: FnMut(&[u8]) -> io::Result<()>, T: Fn(u64)> Writer<W, T> {
    fn write_all(mut self, entries: &Receiver<Entry>) {
        while let Ok(entry) = entries.recv() {
            match entry {
                Entry::Line(line) => self.write_line(&line),
                Entry::Flush { done, is_again } => {
                    let is_telling = self.tell_dropped();
                    let again = Entry::Flush { done: done.clone(), is_again: !is_telling };
                    let is_over = is_again && !is_telling;
                    if is_over || self.queue.entries.try_send(again).is_err() {
                        // An error means that nobody waits any more.
                        let _ = done.try_send(());
                    }
                }
            }
        }
    }

    fn write_line(&mut self, line: &[u8]) {
        self.has_written = (self.write)(line).is_ok();
        let counts = &self.queue.counts;
        if !self.has_written {
            counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        let waiting = counts.waiting_bytes.fetch_sub(line.len(), Ordering::Relaxed);
        if waiting == line.len() {
            self.tell_dropped();
        }
    }

    /// Logs how many lines were dropped since it last did. False: none, or nothing can be written.
    fn tell_dropped(&mut self) -> bool {
        let dropped = self.queue.dropped();
        let is_news = self.has_written && dropped > self.told;
        if is_news {
            (self.tell)(dropped - self.told);
            self.told = dropped;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::Sender;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A queue whose reader takes a line each time that it is let, and what the reader has.
    fn slow() -> (LogQueue, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (let_go, is_let) = std::sync::mpsc::channel::<()>();
        let written = Arc::new(Mutex::new(Vec::new()));
        let reader = Arc::clone(&written);
        let write = move |line: &[u8]| {
            // An error means that everything is let through.
            let _ = is_let.recv();
            reader.lock().expect("no panic").extend_from_slice(line);
            Ok(())
        };
        let own: Arc<Mutex<Option<LogQueue>>> = Arc::default();
        let telling = Arc::clone(&own);
        let tell = move |count: u64| {
            let line = format!("dropped {count}\n");
            telling.lock().expect("no panic").as_ref().expect("set").push(line.as_bytes());
        };
        let queue = LogQueue::start(write, tell).expect("a thread");
        *own.lock().expect("no panic") = Some(queue.clone());
        (queue, let_go, written)
    }

    #[test]
    fn a_stalled_reader_holds_up_nobody_and_what_is_dropped_is_told() {
        let (queue, let_go, written) = slow();
        let line = vec![b'x'; 1_000];
        (0..3_000).for_each(|_| queue.push(&line));
        let kept = 3_000 - queue.dropped();
        assert!((1_000..=BYTES_MAX as u64 / 1_000 + 1).contains(&kept), "{kept}");
        (0..2 * LINES_MAX).for_each(|_| queue.push(b"\n"));
        assert!(queue.dropped() > LINES_MAX as u64, "lines are bounded as well as bytes");
        let begun = Instant::now();
        queue.flush(Duration::from_millis(50));
        assert!(begun.elapsed() >= Duration::from_millis(50), "nothing is written");
        let dropped = queue.dropped();
        drop(let_go);
        queue.flush(PATIENCE);
        let written = written.lock().expect("no panic");
        assert!(written.ends_with(format!("dropped {dropped}\n").as_bytes()), "told at the end");
        let long = written.split(|&byte| byte == b'\n').next().expect("lines").len();
        assert_eq!(long as u64, kept * 1_000);
    }

    #[test]
    fn last_words_wait_for_room() {
        let (queue, let_go, written) = slow();
        (0..2 * LINES_MAX).for_each(|_| queue.push(b"\n"));
        queue.expect_end(Duration::from_millis(20));
        let begun = Instant::now();
        (0..1_000).for_each(|_| queue.push(b"in vain\n"));
        assert!(begun.elapsed() >= Duration::from_millis(20), "the first one waits");
        queue.expect_end(PATIENCE);
        let other = queue.clone();
        let last = thread::spawn(move || {
            other.push(b"last words\n");
            other.flush(PATIENCE);
        });
        drop(let_go);
        last.join().expect("no panic");
        let written = written.lock().expect("no panic");
        assert!(written.windows(11).any(|bytes| bytes == b"last words\n"));
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_nobody_goes_on_telling_so() {
        let queue = LogQueue::start(
            |_| Err(io::ErrorKind::StorageFull.into()),
            |_| panic!("what is lost cannot be told"),
        );
        let queue = queue.expect("a thread");
        (0..10).for_each(|_| queue.push(b"x\n"));
        queue.flush(PATIENCE);
        assert_eq!(queue.dropped(), 10);
    }
}
