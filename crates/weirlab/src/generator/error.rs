//! Why a generator did not measure.
use crate::load::LoadError;
use std::fmt;
use std::io;

/// Why there is no outcome. Each text says how to fix it.
#[derive(Debug)]
pub enum GeneratorError {
    /// It is not on this machine.
    Missing {
        /// Its name.
        name: &'static str,
        /// How to install it.
        install: &'static str,
        /// The environment variable that may name its program.
        variable: String,
    },
    /// It cannot do what the case asks.
    Unsupported {
        /// Its name.
        name: &'static str,
        /// What it cannot do.
        what: String,
    },
    /// A script is wrong, or cannot be run as it is.
    Script {
        /// The file, and line and column where they are known.
        place: String,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// It ended with an error, or said what cannot be read.
    Failed {
        /// Its name.
        name: &'static str,
        /// What it said.
        message: String,
    },
    /// The plan makes no sense, or the target does not answer.
    Load(LoadError),
    /// It could not be started.
    System(&'static str, io::Error),
}

impl fmt::Display for GeneratorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GeneratorError::Missing { name, install, variable } => write!(
                formatter,
                "the generator {name} is not on this machine. Install it: {install}. Or name its program with {variable}=PATH"
            ),
            GeneratorError::Unsupported { name, what } => {
                write!(formatter, "{name} cannot send {what}; leave it out of --generator, or take weirlab")
            }
            GeneratorError::Script { place, message } => write!(formatter, "{place}: {message}"),
            GeneratorError::Failed { name, message } => write!(formatter, "{name}: {message}"),
            GeneratorError::Load(error) => error.fmt(formatter),
            GeneratorError::System(name, error) => write!(formatter, "{name} cannot be run: {error}"),
        }
    }
}

impl std::error::Error for GeneratorError {}
