//! One connection to a broker: requests, their responses, and the login.

use super::config::{Mechanism, SaslConfig};
use super::error::KafkaError;
use super::response::{Authenticated, Handshake, Metadata, Produced, Reader, Response};
use super::scram::Scram;
use bytes::BytesMut;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::{
    ApiKey, MetadataRequest, ProduceRequest, RequestHeader, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, StrBytes};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A request, in the version that Kafka 0.11 to 4.x has in common; those of logins since 1.0.
pub(super) trait Request: Encodable + HeaderVersion {
    const KEY: ApiKey;
    const VERSION: i16;
    type Response: Response;
}

impl Request for MetadataRequest {
    const KEY: ApiKey = ApiKey::Metadata;
    const VERSION: i16 = 4;
    type Response = Metadata;
}

impl Request for ProduceRequest {
    const KEY: ApiKey = ApiKey::Produce;
    const VERSION: i16 = 3;
    type Response = Produced;
}

impl Request for SaslHandshakeRequest {
    const KEY: ApiKey = ApiKey::SaslHandshake;
    const VERSION: i16 = 1;
    type Response = Handshake;
}

impl Request for SaslAuthenticateRequest {
    const KEY: ApiKey = ApiKey::SaslAuthenticate;
    const VERSION: i16 = 0;
    type Response = Authenticated;
}

/// The longest response: the metadata of a topic with some 100,000 partitions.
const MAX_RESPONSE_LEN: u32 = 16 * 1024 * 1024;

/// How the broker's statistics and quotas name this client.
const CLIENT_ID: &str = "weir";

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection.
pub(super) struct Connection {
    stream: Box<dyn Duplex>,
    /// The number of the last request.
    correlation_id: i32,
}

impl Connection {
    pub(super) fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { stream: Box::new(stream), correlation_id: 0 }
    }

    /// Sends a request, and waits for its response.
    pub(super) async fn call<R: Request>(&mut self, request: &R) -> Result<R::Response, KafkaError> {
        self.send(request).await?;
        let response = self.receive().await?;
        let mut response = Reader(&response);
        if response.int32()? != self.correlation_id {
            return Err(KafkaError::Malformed("a response to another request".to_owned()));
        }
        R::Response::read(&mut response)
    }

    /// Sends a request that gets no response.
    pub(super) async fn send<R: Request>(&mut self, request: &R) -> Result<(), KafkaError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY as i16)
            .with_request_api_version(R::VERSION)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str(CLIENT_ID)));
        let mut frame = BytesMut::zeroed(4);
        let written = header.encode(&mut frame, R::header_version(R::VERSION));
        let written = written.and_then(|()| request.encode(&mut frame, R::VERSION));
        written.map_err(|error| KafkaError::Malformed(error.to_string()))?;
        let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
        frame[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&frame).await?;
        self.stream.flush().await?;
        Ok(())
    }

    /// Memory grows with what arrives, not with the length that the broker claims.
    async fn receive(&mut self) -> Result<Vec<u8>, KafkaError> {
        let length = self.stream.read_u32().await?;
        if length > MAX_RESPONSE_LEN {
            return Err(KafkaError::Malformed(format!("a response of {length} bytes")));
        }
        let mut response = Vec::new();
        (&mut self.stream).take(length.into()).read_to_end(&mut response).await?;
        match response.len() == length as usize {
            true => Ok(response),
            false => Err(KafkaError::Closed),
        }
    }

    /// Logs in.
    pub(super) async fn log_in(&mut self, config: &SaslConfig) -> Result<(), KafkaError> {
        let mechanism = StrBytes::from_string(config.mechanism.clone());
        let handshake = SaslHandshakeRequest::default().with_mechanism(mechanism);
        let answer = self.call(&handshake).await?;
        if answer.error_code.is_err() {
            return Err(KafkaError::Mechanism(answer.offered));
        }
        let password = config.password.expose();
        match config.mechanism() {
            Mechanism::Plain => {
                self.authenticate(format!("\0{}\0{password}", config.user)).await?;
            }
            Mechanism::Scram(hash) => {
                let scram = Scram::new(hash, &config.user).map_err(KafkaError::Login)?;
                let challenge = self.authenticate(scram.first_message()).await?;
                let proof = scram.prove(password, &challenge).map_err(KafkaError::Login)?;
                let last = self.authenticate(proof.message.clone()).await?;
                if !proof.is_answered_by(&last) {
                    let why = "the broker did not prove that it knows the password";
                    return Err(KafkaError::Login(why.to_owned()));
                }
            }
        }
        Ok(())
    }

    /// One step of a login.
    async fn authenticate(&mut self, message: String) -> Result<String, KafkaError> {
        let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
        let answer = self.call(&request).await?;
        match answer.error_code.err() {
            Some(error) if answer.error_message.is_empty() => Err(KafkaError::Login(error.to_string())),
            Some(_) => Err(KafkaError::Login(answer.error_message)),
            None => Ok(answer.message),
        }
    }
}

impl From<io::Error> for KafkaError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                Self::Closed
            }
            _ => Self::Io(error),
        }
    }
}
