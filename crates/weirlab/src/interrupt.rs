//! Ctrl-C and SIGTERM as a flag, so that what was started is ended in good order.
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_default};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that either signal raises; a second one ends the program as usual.
///
/// # Errors
/// When signals cannot be caught.
pub(crate) fn flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        register_conditional_default(signal, Arc::clone(&stop))?;
        register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
