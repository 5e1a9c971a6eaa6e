//! What one process of a node leaves to the next one, apart from sockets: state in memory, and the use of files.
mod files;
mod state;

pub(crate) use files::FilesGate;
pub(crate) use state::Handovers;
