//! Why a script could not go on.
use crate::catalogue::CatalogueError;
use crate::driver::DriverError;
use crate::event_loop::ServiceError;
use crate::flame::FlameError;
use crate::generator::GeneratorError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a script could not go on. Each text says how to fix it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ScriptError {
    /// The laboratory could not be set up: a version or a program is unknown or cannot be built.
    Setup(String),
    /// The folder with `targets/` is missing, or what is in it is wrong.
    Catalogue(CatalogueError),
    /// The upstream did not start.
    Upstream(ServiceError),
    /// The gateway's configuration cannot be used.
    Configuration(String),
    /// The gateway did not start, or cannot be steered.
    Gateway(DriverError),
    /// There is no load to generate, or its generator failed.
    Load(GeneratorError),
    /// There is no flame graph.
    Flame(FlameError),
    /// Results cannot be combined, or drawn, without any.
    NoResults,
    /// The user has asked to stop.
    Interrupted,
    /// A file cannot be read or written.
    File(PathBuf, io::Error),
}

impl fmt::Display for ScriptError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScriptError::Setup(text) | ScriptError::Configuration(text) => formatter.write_str(text),
            ScriptError::Catalogue(error) => error.fmt(formatter),
            ScriptError::Upstream(error) => error.fmt(formatter),
            ScriptError::Gateway(error) => error.fmt(formatter),
            ScriptError::Load(error) => error.fmt(formatter),
            ScriptError::Flame(error) => error.fmt(formatter),
            ScriptError::NoResults => {
                formatter.write_str("there is no result yet: wait for one load at least")
            }
            ScriptError::Interrupted => formatter.write_str("interrupted"),
            ScriptError::File(path, error) => write!(formatter, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ScriptError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ScriptError::Catalogue(error) => Some(error),
            ScriptError::Upstream(error) => Some(error),
            ScriptError::Gateway(error) => Some(error),
            ScriptError::Load(error) => Some(error),
            ScriptError::Flame(error) => Some(error),
            ScriptError::File(_, error) => Some(error),
            ScriptError::Setup(_)
            | ScriptError::Configuration(_)
            | ScriptError::NoResults
            | ScriptError::Interrupted => None,
        }
    }
}

impl From<CatalogueError> for ScriptError {
    fn from(error: CatalogueError) -> Self {
        ScriptError::Catalogue(error)
    }
}

impl From<DriverError> for ScriptError {
    fn from(error: DriverError) -> Self {
        ScriptError::Gateway(error)
    }
}

impl From<GeneratorError> for ScriptError {
    fn from(error: GeneratorError) -> Self {
        ScriptError::Load(error)
    }
}

impl From<FlameError> for ScriptError {
    fn from(error: FlameError) -> Self {
        ScriptError::Flame(error)
    }
}
