//! The folder of a run: written so that the last good version survives whatever happens, and read back.
use super::{Run, SCHEMA};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The data's file name within the folder.
pub const DATA: &str = "data.json";

/// A run's folder.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes the folder `id` below `out`, and what is missing above it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(out: &Path, id: &str) -> Result<RunFolder, StoreError> {
        let path = out.join(id);
        fs::create_dir_all(&path).map_err(|error| StoreError::Write(path.clone(), error))?;
        Ok(RunFolder { path })
    }

    /// Makes a new folder below `out`: `id`, or `id-2`, `id-3` and so on if that exists.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn claim(out: &Path, id: &str) -> Result<RunFolder, StoreError> {
        fs::create_dir_all(out).map_err(|error| StoreError::Write(out.to_owned(), error))?;
        let mut path = out.join(id);
        for next in 2_u64.. {
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    path = out.join(format!("{id}-{next}"))
                }
                Err(error) => return Err(StoreError::Write(path, error)),
                Ok(()) => break,
            }
        }
        Ok(RunFolder { path })
    }

    /// Its own name, without the folders above it.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the data, in one piece or not at all.
    ///
    /// # Errors
    /// When it cannot be written; what was there before is as it was.
    pub fn save(&self, run: &Run) -> Result<(), StoreError> {
        self.replace(DATA, |file| {
            serde_json::to_writer(&mut *file, run)?;
            file.write_all(b"\n")
        })
    }

    /// Writes another file into the folder, in one piece or not at all.
    ///
    /// # Errors
    /// When it cannot be written; what was there before is as it was.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        self.replace(name, |file| file.write_all(content))
    }

    fn replace(
        &self,
        name: &str,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let path = self.path.join(name);
        let draft = self.path.join(format!(".{name}.draft"));
        let written = fill_file(&draft, fill).and_then(|()| fs::rename(&draft, &path));
        written.map_err(|error| {
            // Of no use to anyone, and in the way when the disk is full.
            let _ = fs::remove_file(&draft);
            StoreError::Write(path, error)
        })
    }
}

fn fill_file(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    fill(&mut file)?;
    // Only now is the disk asked for room.
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Reads a run from its folder or from its `data.json`.
///
/// # Errors
/// When there is no run, or its format is of another version.
pub fn read(path: &Path) -> Result<Run, StoreError> {
    let file = if path.is_dir() { path.join(DATA) } else { path.to_owned() };
    let text = fs::read(&file).map_err(|error| StoreError::Read(file.clone(), error))?;
    let value: Result<Format, _> = serde_json::from_slice(&text);
    match value {
        Ok(format) if format.schema != SCHEMA => return Err(StoreError::Version(file, format.schema)),
        Ok(_) => serde_json::from_slice(&text),
        Err(error) => Err(error),
    }
    .map_err(|error| StoreError::Content(file, error))
}

/// What all versions of the format begin with.
#[derive(serde::Deserialize)]
struct Format {
    schema: u32,
}

/// Why a run could not be written or read.
#[derive(Debug)]
pub enum StoreError {
    /// The system did not let it be written.
    Write(PathBuf, io::Error),
    /// The system did not let it be read.
    Read(PathBuf, io::Error),
    /// It is not a run's data.
    Content(PathBuf, serde_json::Error),
    /// It is of another version of the format.
    Version(PathBuf, u32),
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreError::Write(path, error) if error.kind() == io::ErrorKind::StorageFull => write!(
                formatter,
                "{}: the disk is full; the last version saved is untouched. Free some space or choose another place with --out",
                path.display()
            ),
            StoreError::Write(path, error) => {
                write!(
                    formatter,
                    "{}: cannot be written: {error}; choose another place with --out",
                    path.display()
                )
            }
            StoreError::Read(path, error) if error.kind() == io::ErrorKind::NotFound => {
                write!(formatter, "{}: there is no such run; give its folder or its {DATA}", path.display())
            }
            StoreError::Read(path, error) => write!(formatter, "{}: cannot be read: {error}", path.display()),
            StoreError::Content(path, error) => {
                write!(formatter, "{}: not the data of a run: {error}", path.display())
            }
            StoreError::Version(path, found) => write!(
                formatter,
                "{}: format {found}, but this weirlab reads format {SCHEMA}; read it with the version that wrote it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StoreError {}
