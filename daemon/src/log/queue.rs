//! The queue between the daemon and the reader of its log: lines wait here for a separate thread to write them.
//!
//! A reader may stall (a full pipe, a paused terminal), and nothing else may wait for it. So the queue is bounded: lines that do
//! not fit are dropped and counted, and the log says so once it can be written again. `tracing-appender` does much of this, but
//! brings six crates, bounds its queue by lines, which may be long, and leaves reporting the count to us.

use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tracing::warn;
use tracing_subscriber::fmt::MakeWriter;

/// The most bytes that wait: some five thousand lines. As many more may be being written.
const ROOM: usize = 1 << 20;

/// How long the daemon, when it ends, waits for its log to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause after a write for which a non-blocking descriptor had no room.
const PAUSE: Duration = Duration::from_millis(50);

/// The sending end. Each write is one line.
#[derive(Clone)]
pub(super) struct Queue(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    dropped: u64,
    /// No more lines come.
    closed: bool,
    /// Everything has been written.
    done: bool,
}

/// When dropped, writes what is left, as long as somebody reads it.
#[must_use = "the log ends with it"]
pub(crate) struct Flush(Arc<Shared>);

/// Starts the thread that writes to `sink`.
pub(super) fn start(sink: impl Write + Send + 'static) -> io::Result<(Queue, Flush)> {
    let shared = Arc::new(Shared {
        waiting: Mutex::default(),
        changed: Condvar::new(),
    });
    let its = Arc::clone(&shared);
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || its.write_to(sink))?;
    Ok((Queue(Arc::clone(&shared)), Flush(shared)))
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting
            .lock()
            .expect("nothing panics while it holds the queue")
    }

    fn write_to(&self, mut sink: impl Write) {
        while let Some((lines, dropped)) = self.take() {
            if dropped > 0 {
                // This line goes right behind what came before the gap.
                warn!(
                    lines = dropped,
                    "lines dropped from the log: nobody read what was written"
                );
            }
            write_all(&mut sink, &lines);
        }
        self.waiting().done = true;
        self.changed.notify_all();
    }

    /// Waits for lines; `None` at the end.
    fn take(&self) -> Option<(Vec<u8>, u64)> {
        let waiting = self.waiting();
        let idle = |waiting: &mut Waiting| waiting.lines.is_empty() && !waiting.closed;
        let mut waiting = self
            .changed
            .wait_while(waiting, idle)
            .expect("nothing panics while it holds the queue");
        let lines = mem::take(&mut waiting.lines);
        (!lines.is_empty()).then(|| (lines, mem::take(&mut waiting.dropped)))
    }
}

/// Writes lines for as long as it takes. What cannot be written is lost: there is nowhere else to say so.
fn write_all(sink: &mut impl Write, mut lines: &[u8]) {
    while !lines.is_empty() {
        match sink.write(lines) {
            Ok(0) => return,
            Ok(written) => lines = &lines[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(_) => return,
        }
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.waiting();
        if waiting.lines.len() + line.len() > ROOM {
            waiting.dropped += 1;
        } else {
            // If others wait already, the thread is awake.
            if waiting.lines.is_empty() {
                self.0.changed.notify_all();
            }
            waiting.lines.extend_from_slice(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        waiting.closed = true;
        self.0.changed.notify_all();
        let unwritten = |waiting: &mut Waiting| !waiting.done;
        // What is still unwritten has no reader.
        let _ = self
            .0
            .changed
            .wait_timeout_while(waiting, PATIENCE, unwritten);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A reader that reports what it was given, and takes it only when told to.
    struct Reader {
        given: Sender<Vec<u8>>,
        turns: Receiver<()>,
    }

    impl Write for Reader {
        fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
            let _ = self.given.send(lines.to_vec());
            self.turns.recv().map_err(|_| io::Error::other("gone"))?;
            Ok(lines.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_stalled_reader_leaves_is_bounded_and_counted() {
        let (turn, turns) = channel();
        let (given, got) = channel();
        let (mut queue, flush) = start(Reader { given, turns }).unwrap();
        queue.write_all(b"first\n").unwrap();
        assert_eq!(got.recv().unwrap(), b"first\n");
        for _ in 0..5000 {
            queue.write_all(&[b'x'; 1024]).unwrap();
        }
        assert_eq!(queue.0.waiting().lines.len(), ROOM);
        assert_eq!(queue.0.waiting().dropped, 5000 - 1024);
        turn.send(()).unwrap();
        assert_eq!(got.recv().unwrap().len(), ROOM);
        assert_eq!(queue.0.waiting().dropped, 0, "told with what was written");
        queue.write_all(b"on\n").unwrap();
        turn.send(()).unwrap();
        assert_eq!(got.recv().unwrap(), b"on\n");
        drop((turn, flush));
    }

    #[test]
    fn the_end_waits_for_the_log_but_not_for_a_stuck_reader() {
        let (turn, turns) = channel();
        let (given, got) = channel();
        let (mut queue, flush) = start(Reader { given, turns }).unwrap();
        queue.write_all(b"last\n").unwrap();
        turn.send(()).unwrap();
        drop(flush);
        assert_eq!(got.try_recv().unwrap(), b"last\n");

        let (_stalled, turns) = channel();
        let (mut queue, flush) = start(Reader {
            given: channel().0,
            turns,
        })
        .unwrap();
        queue.write_all(b"nobody reads this\n").unwrap();
        drop(flush);
    }
}
