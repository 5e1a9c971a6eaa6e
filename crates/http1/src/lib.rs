//! HTTP/1.1 messages to and from bytes (RFC 9110, RFC 9112), without sockets, tasks or clocks.
//!
//! Bytes go in, a [`RequestHead`], a [`ResponseHead`] or pieces of a body come out; [`encode`] goes the other
//! way. The caller owns the connection, its buffers and its timeouts.
//!
//! ```
//! use weir_http1::{BodyDecoder, Framing, Limits, RequestHead};
//!
//! let input = b"POST /orders?page=2 HTTP/1.1\r\nHost: shop.test\r\nContent-Length: 2\r\n\r\nhi";
//! let mut head = RequestHead::default();
//! let consumed = head.parse(input, &Limits::default())?.ok_or("the head is incomplete")?;
//! assert_eq!((head.path(), head.query(), head.host()), ("/orders", Some("page=2"), Some("shop.test")));
//! assert_eq!(head.framing, Framing::Length(2));
//!
//! let mut body = BodyDecoder::new(head.framing);
//! let piece = body.decode(&input[consumed..])?;
//! assert_eq!(&input[consumed..][piece.data], b"hi");
//! assert!(piece.done);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//!
//! - **One reading or none.** A message that two parsers could delimit differently is a [`ParseError`], never a guess:
//!   one `Content-Length` or one `Transfer-Encoding: chunked`, each once; lines end in CRLF; no folded lines, no
//!   control characters. A response may repeat an equal `Content-Length`, end lines in LF alone and have a space before a
//!   colon, because every line of it is written anew for the client. Whatever follows a `ParseError` on the connection cannot be trusted: answer and close.
//! - **Splits do not matter.** However the bytes are cut into reads, the outcome is the same, and the work is linear
//!   in their number.
//! - **What is parsed can be sent on.** Field values never hold CR, LF or NUL, whether parsed or added later, so no
//!   value can end a line or a head. Trailers stay apart from headers.
//! - **Steady state allocates nothing.** Heads are meant to be kept and parsed into again; a field costs an entry in a
//!   reused table, and its bytes one copy of the whole head.
//! - **Secrets stay inside.** `Debug` and `Display` show names, never field values or query strings.

mod body;
pub mod encode;
mod fields;
mod framing;
mod known;
mod marks;
mod message;
mod parse_error;
mod request;
mod response;
mod scan;
mod syntax;
mod target;
mod trailers;

pub use body::{BodyDecoder, Decoded};
pub use fields::{FieldRef, Headers};
pub use framing::Framing;
pub use known::{Known, KnownSet};
pub use message::{Limits, Method, Version};
pub use parse_error::ParseError;
pub use request::RequestHead;
pub use response::ResponseHead;
pub use syntax::is_token;
pub use trailers::is_same_header;
