//! The problems of a file: what is wrong, where, and how to correct it.

use std::error::Error;
use std::fmt;
use std::string::FromUtf8Error;

use crate::matching::Position;

/// A problem or a warning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    file: Box<str>,
    at: Position,
    path: Box<str>,
    message: Box<str>,
    remedy: Box<str>,
    /// Whether the text is not in its format, so that no reader gets past this place.
    pub(super) is_syntax: bool,
}

impl Problem {
    /// Returns the file's name, as the caller gave it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the line, from 1, or 0 if the problem concerns the whole file.
    #[must_use]
    pub fn line(&self) -> usize {
        self.at.line as usize
    }

    /// Returns the column in characters, from 1, or 0 if the problem concerns the whole file or line.
    #[must_use]
    pub fn column(&self) -> usize {
        self.at.column as usize
    }

    /// Returns the path of the field, such as `descriptors[2].rate_limit.unit`. Empty if the problem concerns no field.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns what is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Creates a problem of a whole line, for your own checks.
    ///
    /// # Examples
    /// ```
    /// use tollgate_config::Problem;
    ///
    /// let problem = Problem::of_line("limits.yaml", 7, "the limit is above 1000", "ask the team first");
    /// assert_eq!(problem.to_string(), "limits.yaml:7: the limit is above 1000; ask the team first");
    /// ```
    #[must_use]
    pub fn of_line(file: &str, line: usize, message: &str, remedy: &str) -> Self {
        Self::new(file, Position::new(line, 0), "", message, remedy)
    }

    pub(super) fn new(
        file: &str,
        at: Position,
        path: impl fmt::Display,
        message: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) -> Self {
        let path = path.to_string().into();
        let (message, remedy) = (message.into(), remedy.into());
        Self { file: file.into(), at, path, message, remedy, is_syntax: false }
    }

    /// Returns how to correct the problem.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for Problem {
    /// Writes `limits.yaml:7:13: descriptors[2].rate_limit.unit: no unit is called "fortnight"; use …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        for place in [self.at.line, self.at.column].into_iter().filter(|place| *place > 0) {
            write!(f, "{place}:")?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}", self.message)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// The error for rules that cannot be used. It lists all problems, by file and line.
///
/// Its text has one line for each problem.
///
/// # Examples
/// ```
/// use tollgate_config::Config;
///
/// let text = "
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: { unit: fortnight, requests_per_unit: 10 }
/// ";
/// let error = Config::from_yaml("limits.yaml", text).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "limits.yaml:5:25: descriptors[0].rate_limit.unit: no unit is called \"fortnight\"; \
///      use second, minute, hour, day, week, month or year"
/// );
/// assert_eq!(error.problems()[0].line(), 5);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    /// Returns all values, or the problems of those that failed: for several files.
    ///
    /// # Errors
    /// If a value is an error: the problems of all errors, in order.
    pub fn of_all<T>(each: impl IntoIterator<Item = Result<T, Self>>) -> Result<Vec<T>, Self> {
        let (mut all, mut problems) = (Vec::new(), Vec::new());
        for one in each {
            match one {
                Ok(one) => all.push(one),
                Err(error) => problems.extend(error.problems),
            }
        }
        if problems.is_empty() { Ok(all) } else { Err(Self { problems }) }
    }

    /// Does the same for the items of one text. Stops at the first 100 problems, because a short text can have millions of items.
    pub(super) fn of_list<T>(
        name: &str,
        items: impl Iterator<Item = Result<T, Self>>,
    ) -> Result<Vec<T>, Self> {
        let mut left = MOST;
        let mut all = Self::of_all(items.take_while(|item| {
            let is_read = left > 0;
            left = left.saturating_sub(item.as_ref().map_or_else(|error| error.problems.len(), |_| 0));
            is_read
        }));
        if let Err(error) = &mut all
            && left == 0
        {
            let message = "the list may have more problems: the rest of it was not read";
            error.problems.push(Problem::new(name, Position::default(), "", message, "correct these first"));
        }
        all
    }

    /// Returns the problems by line: at least one, and at most the first 100 of a file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The problem of a file that was not read.
    pub(super) fn unreadable(file: &str, at: Position, message: String, remedy: &str) -> Self {
        Self::new(vec![Problem::new(file, at, "", message, remedy)])
    }

    /// Creates an error from problems, of one or several files. A check of the program's own makes each of them with
    /// [`Problem::of_line`].
    #[must_use]
    pub fn new(problems: Vec<Problem>) -> Self {
        Self { problems }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<String> = self.problems.iter().map(Problem::to_string).collect();
        f.write_str(&problems.join("\n"))
    }
}

tollgate::internals::debug_shows_message!(ConfigError);

impl Error for ConfigError {}

/// Collects the problems of one file.
#[derive(Debug)]
pub(super) struct Problems {
    file: Box<str>,
    found: Vec<Problem>,
    more: usize,
}

/// The maximum number of problems that are kept. More would not help the reader.
const MOST: usize = 100;

impl Problems {
    pub(super) fn of(file: &str) -> Self {
        Self { file: file.into(), found: Vec::new(), more: 0 }
    }

    pub(super) fn add(
        &mut self,
        at: Position,
        path: impl fmt::Display,
        message: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) {
        if !self.skip() {
            self.found.push(Problem::new(&self.file, at, path, message, remedy));
        }
    }

    /// Counts a problem, if no more are kept. Returns whether it did. A caller whose message takes long to write asks first.
    pub(super) fn skip(&mut self) -> bool {
        let is_full = self.found.len() == MOST;
        self.more += usize::from(is_full);
        is_full
    }

    /// Adds a problem after which the rest of the file cannot be read.
    pub(super) fn fail<T>(
        &mut self,
        at: Position,
        message: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) -> Option<T> {
        self.add(at, "", message, remedy);
        None
    }

    /// Adds the problem of a text that is not in its format.
    pub(super) fn invalid<T>(
        &mut self,
        format: &str,
        at: Position,
        reason: impl fmt::Display,
        remedy: impl Into<Box<str>>,
    ) -> Option<T> {
        if !self.skip() {
            let message = format!("this is not valid {format}: {reason}");
            let problem = Problem::new(&self.file, at, "", message, remedy);
            self.found.push(Problem { is_syntax: true, ..problem });
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns the number of problems, so that a caller can detect new ones.
    pub(super) fn len(&self) -> usize {
        self.found.len().saturating_add(self.more)
    }

    /// Returns the problems in the order of the file.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| problem.at);
        if self.more > 0 {
            let message = format!("and {} more problems", self.more);
            self.found.push(Problem::new(&self.file, Position::default(), "", message, ""));
        }
        self.found
    }

    /// Returns the error of a text. `better` may know another remedy for a problem.
    pub(super) fn into_error(self, better: impl Fn(&Problem) -> Option<&'static str>) -> ConfigError {
        let mut problems = self.into_sorted();
        for problem in &mut problems {
            if let Some(remedy) = better(problem) {
                problem.remedy = remedy.into();
            }
        }
        ConfigError { problems }
    }
}

/// Returns why a path cannot be read.
pub(super) fn unreadable_because(error: &std::io::Error) -> String {
    let text = error.to_string();
    // Omits "(os error 2)", which does not help the reader.
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Returns the problem of a file with a byte that is not valid text.
pub(super) fn no_utf8(name: &str, error: &FromUtf8Error) -> ConfigError {
    let (text, rest) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
    let line = text.split(|&byte| byte == b'\n').count();
    let before = text.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
    let column = String::from_utf8_lossy(before).chars().count() + 1;
    let byte = rest.first().copied().unwrap_or_default();
    let message = format!("this is not UTF-8: found the byte {byte:#04x}");
    ConfigError::unreadable(name, Position::new(line, column), message, "save the file as UTF-8")
}
