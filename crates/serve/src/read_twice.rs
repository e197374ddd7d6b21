//! Changes of files, without the parts that a reader finds while another program writes them.

/// What was read of files. A file that is being written is another one at the next reading, so a change counts when it is
/// read twice.
pub struct ReadTwice<T> {
    decided: T,
    /// A change that was read once.
    unconfirmed: Option<T>,
}

impl<T: PartialEq> ReadTwice<T> {
    /// `first` is the first reading, which was put in force.
    pub const fn new(first: T) -> Self {
        Self { decided: first, unconfirmed: None }
    }

    /// Takes the next reading, and returns it if it is a change that counts.
    pub fn take(&mut self, read: T) -> Option<&T> {
        let is_change = self.decided != read;
        if is_change && self.unconfirmed.as_ref() == Some(&read) {
            self.unconfirmed = None;
            self.decided = read;
            return Some(&self.decided);
        }
        self.unconfirmed = is_change.then_some(read);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_counts_at_its_second_reading() {
        let mut file = ReadTwice::new(&"old");
        let readings =
            ["old", "n", "ne", "old", "ne", "new", "new", "new", "old", "new", "old", "old", "old"];
        let counted = readings.iter().enumerate().filter(|(_, read)| file.take(*read).is_some());
        assert_eq!(counted.map(|(at, _)| at).collect::<Vec<_>>(), [6, 11]);
    }
}
