//! Gives each request an id that the upstream and the client receive. Like APISIX's plugin of this name; Kong's is
//! correlation-id.
//!
//! A request that already has the header keeps its value, and so does a response.
//!
//! ```yaml
//! plugins:
//!   - name: request-id
//!     config:
//!       header_name: X-Request-Id
//!       algorithm: uuid
//! ```
//!
//! | `algorithm` | ids |
//! |---|---|
//! | `uuid` | a random UUID |
//! | `nanoid` | 21 random letters, digits, `-` and `_` |
//! | `range_id` | `range_id.length` random characters of `range_id.char_set` |

use crate::shared::random_id;
use weir_plugin::{BuildContext, Exchange, FieldError, Flow, Hooks, Phases, Plugin, Record};

/// The header, and what is put into it.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The header that holds the id.
    #[field(default = "X-Request-Id", matches = header_name)]
    pub header_name: String,
    /// Sends the id to the client too.
    #[field(default = true)]
    pub include_in_response: bool,
    /// How ids are made.
    #[field(default = "uuid", one_of = ["uuid", "nanoid", "range_id"])]
    pub algorithm: String,
    /// What ids of `range_id` look like.
    #[field(default = {})]
    pub range_id: RangeId,
}

/// A random text.
#[derive(Debug, Clone, Record)]
pub(super) struct RangeId {
    /// How many characters an id has.
    #[field(default = 16, between = [6, 4096])]
    pub length: u32,
    /// The characters that it may have.
    #[field(default = "abcdefghijklmnopqrstuvwxyzABCDEFGHIGKLMNOPQRSTUVWXYZ0123456789", len_min = 6)]
    pub char_set: String,
}

fn violations(config: &Config) -> Vec<FieldError> {
    if config.range_id.char_set.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Vec::new();
    }
    vec![FieldError::new("range_id.char_set", "a header holds printable ASCII alone; leave the others out")]
}

const NANOID: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const NANOID_LENGTH: u32 = 21;

enum Algorithm {
    Uuid,
    Random { characters: Box<[u8]>, length: u32 },
}

/// One configured instance.
pub(super) struct RequestId {
    header_name: String,
    include_in_response: bool,
    algorithm: Algorithm,
}

impl Plugin for RequestId {
    const NAME: &'static str = "request-id";
    const PRIORITY: i32 = 12_015;
    const EXTENSION: bool = true;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let RangeId { length, char_set } = config.range_id;
        let algorithm = match config.algorithm.as_str() {
            "nanoid" => Algorithm::Random { characters: NANOID.into(), length: NANOID_LENGTH },
            "range_id" => Algorithm::Random { characters: char_set.into_bytes().into(), length },
            _ => Algorithm::Uuid,
        };
        let Config { header_name, include_in_response, .. } = config;
        Ok(Self { header_name, include_in_response, algorithm })
    }
}

/// The id that the request was given, even if another plugin changes the header.
struct Given(Vec<u8>);

impl Hooks for RequestId {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE.only_if(self.include_in_response)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let sent = exchange.request.headers.get(&self.header_name).filter(|value| !value.is_empty());
        let id = match sent {
            Some(value) => value.to_vec(),
            None => {
                let id = self.algorithm.make();
                exchange.request.headers.set(&self.header_name, &id);
                id
            }
        };
        if self.include_in_response {
            exchange.extensions.insert(Given(id));
        }
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        let headers = &exchange.response.headers;
        if !self.include_in_response || headers.get(&self.header_name).is_some_and(|value| !value.is_empty())
        {
            return;
        }
        let id = match exchange.extensions.get::<Given>() {
            Some(Given(id)) => id.clone(),
            // The request was answered before the access hook ran.
            None => self.algorithm.make(),
        };
        exchange.response.headers.set(&self.header_name, &id);
    }
}

impl Algorithm {
    fn make(&self) -> Vec<u8> {
        match self {
            Algorithm::Uuid => random_id::uuid().to_string().into_bytes(),
            Algorithm::Random { characters, length } => random(characters, *length),
        }
    }
}

/// Which two bytes of a random UUID make a number; bytes 6 and 8 hold its version.
const PAIRS: [[usize; 2]; 6] = [[0, 1], [2, 3], [4, 5], [9, 10], [11, 12], [13, 14]];

fn random(characters: &[u8], length: u32) -> Vec<u8> {
    let mut text = Vec::with_capacity(length as usize + PAIRS.len());
    while text.len() < length as usize {
        let bytes = random_id::uuid().into_bytes();
        text.extend(PAIRS.map(|[high, low]| {
            let number = u16::from_be_bytes([bytes[high], bytes[low]]);
            characters[usize::from(number) % characters.len()]
        }));
    }
    text.truncate(length as usize);
    text
}

#[cfg(test)]
mod tests;
