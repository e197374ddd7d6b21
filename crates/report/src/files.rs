//! Rule files that are read together, and their errors.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tollgate_config::{Config, ConfigError, Domain, Format, Problem, rule_files};

use crate::error::{Error, plain, read_file};
use crate::human;
use crate::output::{say_error, say_warning};

/// The variable with the address of the Redis server from which rules are pulled.
pub const RULES_URL: &str = "TOLLGATE_REDIS_URL";

/// The name of standard input in messages.
const INPUT: &str = "standard input";

/// Rule files, and the findings for all of them together.
pub struct RuleFiles {
    /// The files that can be read.
    pub configs: Vec<Config>,
    /// The domains; none if the files contradict each other.
    pub domains: Vec<Domain>,
    /// The warnings.
    pub warnings: Vec<Problem>,
    /// The errors.
    pub errors: Vec<Problem>,
}

impl RuleFiles {
    /// Reads files, the files in folders, and for `-` standard input, and prints their warnings and errors.
    pub fn read(paths: &[PathBuf], merge_domains: bool) -> Self {
        let files = Self::read_by(paths, merge_domains, |path| match path.as_os_str() == "-" {
            true => from_input(io::stdin().lock()),
            false => Config::read(path),
        });
        files.print()
    }

    /// Reads one file, or for `-` standard input, and prints its warnings and errors. Returns its rules, format and text.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or has errors, which were printed.
    pub fn read_one(path: &PathBuf) -> Result<(Config, Format, Vec<u8>), Error> {
        let is_input = path.as_os_str() == "-";
        let mut text = Vec::new();
        if is_input {
            let read = io::stdin().lock().read_to_end(&mut text);
            read.map_err(|error| Error::run(format!("cannot read {INPUT}: {}", plain(&error))))?;
        }
        Self::read_by(std::slice::from_ref(path), false, |path| match is_input {
            true => from_input(&*text),
            false => Config::read(path),
        })
        .print()
        .usable()?;
        let (name, format) = match is_input {
            true => (INPUT.to_owned(), format_of(&text)),
            false => {
                // The file may have changed since the check.
                text = read_file(path).map_err(Error::run)?;
                (path.display().to_string(), Format::of_path(path).unwrap_or_default())
            }
        };
        let config = Config::from_bytes(&name, format, &*text);
        Ok((config.map_err(|error| Error::run(error.to_string()))?, format, text))
    }

    fn print(self) -> Self {
        print_warnings(&self.warnings);
        self.errors.iter().for_each(say_error);
        self
    }

    /// Reads files, and the files in folders.
    pub fn read_silently(paths: &[PathBuf], merge_domains: bool) -> Self {
        Self::read_by(paths, merge_domains, |path| Config::read(path))
    }

    fn read_by(
        paths: &[PathBuf],
        merge_domains: bool,
        read: impl Fn(&Path) -> Result<Config, ConfigError>,
    ) -> Self {
        let (mut configs, mut warnings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for file in &paths.iter().flat_map(in_folder).collect::<Vec<_>>() {
            match read(file) {
                Ok(config) => {
                    warnings.extend_from_slice(config.warnings());
                    configs.push(config);
                }
                Err(error) => errors.extend_from_slice(error.problems()),
            }
        }
        let domains = Domain::merge(configs.clone(), merge_domains).unwrap_or_else(|error| {
            errors.extend_from_slice(error.problems());
            Vec::new()
        });
        domains.iter().for_each(|domain| warnings.extend_from_slice(domain.warnings()));
        Self { configs, domains, warnings, errors }
    }

    /// Returns the domains if the files can be used.
    ///
    /// # Errors
    /// Returns an error if the files have errors, which were printed.
    pub fn usable(&self) -> Result<(), Error> {
        if self.errors.is_empty() {
            return Ok(());
        }
        let with_errors: HashSet<&str> = self.errors.iter().map(Problem::file).collect();
        let errors = human::counted(self.errors.len() as u64, "problem");
        let files = human::counted(with_errors.len() as u64, "file");
        Err(Error::run(format!("{errors} in {files}; see above")))
    }
}

/// Reads rules from an input without a name. Its text shows the format.
fn from_input(mut input: impl Read) -> Result<Config, ConfigError> {
    let mut text = Vec::new();
    match input.read_to_end(&mut text) {
        Ok(_) => Config::from_bytes(INPUT, format_of(&text), text),
        Err(error) => {
            let message = format!("cannot be read: {}", plain(&error));
            Err(ConfigError::new(vec![Problem::of_line(INPUT, 0, &message, "")]))
        }
    }
}

/// Returns the format of a text by its first line with content. The reader of YAML also reads JSON.
fn format_of(text: &[u8]) -> Format {
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let first =
        lines.into_iter().find(|line| !line.is_empty() && !line.starts_with(b"#")).unwrap_or_default();
    let name = first.split(|byte| b":={".contains(byte)).next().unwrap_or_default();
    let is_table = first.starts_with(b"[") && first.ends_with(b"]") && !first.contains(&b'{');
    if is_table || first.get(name.len()) == Some(&b'=') { Format::Toml } else { Format::Yaml }
}

/// Returns the files of rules in a folder, in the order of their names, or the path itself.
pub fn in_folder(path: &PathBuf) -> Vec<PathBuf> {
    rule_files(&[path]).unwrap_or_else(|_| vec![path.clone()])
}

/// Prints warnings, each with its place.
pub fn print_warnings(warnings: &[Problem]) {
    warnings.iter().for_each(say_warning);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_shows_its_format() {
        for (text, format) in [
            ("domain: edge\n", Format::Yaml),
            ("# rules\n\ndescriptors:\n- key: a=b\n", Format::Yaml),
            ("{ \"domain\": \"a=b\" }", Format::Yaml),
            ("[{}]", Format::Yaml),
            ("", Format::Yaml),
            ("domain = \"edge\"", Format::Toml),
            ("# rules\n[[descriptors]]\n", Format::Toml),
            ("[tollgate]\n", Format::Toml),
        ] {
            assert_eq!(format_of(text.as_bytes()), format, "{text}");
        }
        let config = from_input(&b"domain = \"edge\"\ndescriptors = []\n"[..]).unwrap();
        assert_eq!((config.file(), config.domain()), ("standard input", "edge"));
    }
}
