//! `MULTI`, `EXEC` and `DISCARD`: commands that are queued, and answered by one array.
//!
//! ```text
//! MULTI      opens a queue
//! a command  is queued if it exists, has the right number of texts and is permitted. Otherwise it spoils the queue
//! EXEC       runs the queue, or nothing of one that is spoilt
//! DISCARD, RESET, QUIT and the end of the connection drop it
//! ```
//! Nothing is charged before `EXEC`. It writes the head of the array, and then the commands are answered like those that arrive: with the
//! same turns for other connections, and as the client takes the answers. So the answers of a queue take no more memory than others.
//! Other clients are answered in between, because each command is about one key or one request to the rules.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::read::Args;

/// The most commands of a queue.
pub const MOST_COMMANDS: usize = 4_096;

/// The most bytes of a queue, with `PLACE` for each text and each command.
pub const MOST_BYTES: usize = 1 << 20;

/// The memory for the place of a text, and of a command.
const PLACE: usize = size_of::<Range<usize>>();

/// A queue of a larger size takes memory of all connections, in blocks of this size. Each connection has the first block for itself.
const BLOCK: usize = 4 << 10;

/// The blocks that all connections together have for queues, beyond one for each: 64 MiB.
const BLOCKS: usize = 16_384;

/// The memory that all connections together have for long queues.
#[derive(Clone, Debug)]
pub struct QueueRoom(Arc<Semaphore>);

impl Default for QueueRoom {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(BLOCKS)))
    }
}

/// The queue of a connection.
#[derive(Debug, Default)]
pub struct Transaction {
    /// The texts of all commands, one after the other.
    bytes: Vec<u8>,
    texts: Vec<Range<usize>>,
    /// The place of each command in `texts`.
    commands: Vec<Range<usize>>,
    /// Whether a command could not be queued.
    pub is_spoilt: bool,
    /// The memory of all connections that this queue has.
    held: Option<OwnedSemaphorePermit>,
}

impl Transaction {
    /// Queues a command.
    ///
    /// # Errors
    /// If there is no room. Then nothing of the queue will run.
    pub fn push(&mut self, args: Args<'_>, room: &QueueRoom) -> Result<(), Cow<'static, str>> {
        let text_bytes = args.iter().map(<[u8]>::len).sum::<usize>();
        let size = self.size() + text_bytes + PLACE * (args.len() + 1);
        let problem = if self.commands.len() >= MOST_COMMANDS || size > MOST_BYTES {
            Some(format!(
                "ERR a transaction has at most {MOST_COMMANDS} commands and {MOST_BYTES} bytes; send several"
            ))
        } else {
            self.bytes.reserve(text_bytes);
            self.texts.reserve(args.len());
            self.commands.reserve(1);
            self.hold(size, room).err().map(str::to_owned)
        };
        if let Some(problem) = problem {
            self.spoil();
            return Err(problem.into());
        }
        let first = self.texts.len();
        for text in args.iter() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(text);
            self.texts.push(start..self.bytes.len());
        }
        self.commands.push(first..self.texts.len());
        Ok(())
    }

    /// Takes the memory that this queue has, with the room into which it grows, from that of all connections.
    ///
    /// # Errors
    /// If there is not enough.
    fn hold(&mut self, size: usize, room: &QueueRoom) -> Result<(), &'static str> {
        if size <= BLOCK {
            return Ok(());
        }
        let held = self.held.as_ref().map_or(0, |held| held.num_permits());
        let missing = (self.memory().div_ceil(BLOCK) - 1).saturating_sub(held);
        let more = Arc::clone(&room.0).try_acquire_many_owned(u32::try_from(missing).unwrap_or(u32::MAX));
        let more =
            more.map_err(|_| "ERR other clients have too many long transactions open; try again later")?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }

    /// Notes that a command could not be queued, and gives the memory back: nothing will run.
    pub fn spoil(&mut self) {
        *self = Self { is_spoilt: true, ..Self::default() };
    }

    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns a command.
    pub fn get(&self, index: usize) -> Option<Args<'_>> {
        let ranges = self.texts.get(self.commands.get(index)?.clone())?;
        Some(Args::of(&self.bytes, ranges))
    }

    /// Whether it takes memory that all connections share.
    pub fn is_long(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.num_permits() > 0)
    }

    /// What counts for [`MOST_BYTES`], and for whether it is long.
    fn size(&self) -> usize {
        self.bytes.len() + PLACE * (self.texts.len() + self.commands.len())
    }

    /// The memory, which is up to twice the size, because a list that is full doubles.
    fn memory(&self) -> usize {
        self.bytes.capacity() + PLACE * (self.texts.capacity() + self.commands.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::{Limits, Reader};
    use super::*;

    /// Queues a command of these words.
    fn push(queue: &mut Transaction, line: &str, room: &QueueRoom) -> Result<(), Cow<'static, str>> {
        let (mut reader, mut input) = (Reader::default(), format!("{line}\n").into_bytes());
        reader.read(&mut input, Limits { args: 1_024, bytes: 1 << 20 }).unwrap().unwrap();
        queue.push(reader.args(&input), room)
    }

    #[test]
    fn queues_have_a_largest_size() {
        let room = QueueRoom::default();
        let mut queue = Transaction::default();
        for _ in 0..MOST_COMMANDS {
            push(&mut queue, "ping", &room).unwrap();
        }
        assert!(push(&mut queue, "ping", &room).unwrap_err().contains("at most 4096 commands"));
        assert!(queue.is_spoilt && queue.len() == 0 && queue.bytes.capacity() == 0);
        let mut queue = Transaction::default();
        let long = format!("echo {}", "x".repeat(60_000));
        let queued = (0..100).take_while(|_| push(&mut queue, &long, &room).is_ok()).count();
        assert_eq!(queued, MOST_BYTES / (60_000 + 4 + 3 * PLACE));
        assert_eq!(room.0.available_permits(), BLOCKS, "a spoilt queue gives its memory back");
    }

    #[test]
    fn long_queues_share_memory() {
        let room = QueueRoom(Arc::new(Semaphore::new(20)));
        let long = format!("echo {}", "x".repeat(30_000));
        let [mut short, mut first, mut second] =
            [const { None }; 3].map(|_: Option<()>| Transaction::default());
        push(&mut first, &long, &room).unwrap();
        push(&mut first, &long, &room).unwrap();
        assert!(first.is_long());
        assert!(push(&mut second, &long, &room).unwrap_err().contains("other clients"));
        push(&mut short, "ping", &room).unwrap();
        assert!(!short.is_long() && !short.is_spoilt);
        drop(first);
        let mut third = Transaction::default();
        push(&mut third, &long, &room).unwrap();
        assert_eq!(third.get(0).unwrap().get(1).unwrap().len(), 30_000);
        assert!(third.get(1).is_none());
    }

    /// Cause: the lengths of the lists counted, and not the room into which they grow. Symptom: queues took up to twice the stated memory.
    #[test]
    fn room_for_growth_counts() {
        const OF_ALL: usize = 64;
        let room = QueueRoom(Arc::new(Semaphore::new(OF_ALL)));
        let echo = format!("echo {}", "x".repeat(1_000));
        let mut queues = Vec::new();
        // The ninth command is the first one after the lists have doubled.
        while let Ok(queue) = (0..9)
            .try_fold(Transaction::default(), |mut queue, _| push(&mut queue, &echo, &room).map(|()| queue))
        {
            queues.push(queue);
        }
        assert!(queues.len() > 4, "{}", queues.len());
        let taken: usize = queues.iter().map(Transaction::memory).sum();
        assert!(taken <= BLOCK * (OF_ALL + queues.len()), "{taken} bytes of {} queues", queues.len());
    }
}
