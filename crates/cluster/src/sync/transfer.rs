//! Entities on their way: [records](super::record) in one stream, compressed once for every data plane that needs them, and
//! cut into chunks. A transfer takes effect as a whole or not at all, however long it is.
mod encoder;
mod receiver;
mod records;

pub use encoder::{CHUNK_LEN, Encoder, Transfer};
pub use receiver::{MAX_REFUSALS, Received, Receiver, Staged, TransferError};
pub(crate) use records::Records;
