//! Sends messages to the leaders of a topic's partitions.

use super::config::{Broker, Config, SaslConfig, login};
use super::connection::Connection;
use super::error::{KafkaError, SendError};
use super::response::{Address, Metadata};
use bytes::{Bytes, BytesMut};
use crc::{CRC_32_ISO_HDLC, Crc};
use kafka_protocol::ResponseError;
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{MetadataRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Record, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType,
};
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Mutex;
use weir_plugin::{BuildContext, Dialer};

/// The format of records since Kafka 0.11.
const RECORDS: RecordEncodeOptions = RecordEncodeOptions { version: 2, compression: Compression::None };

/// The hash by which APISIX's client finds a key's partition.
const KEY_HASH: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// Sends messages to one topic.
pub(super) struct Producer {
    dialer: Dialer,
    is_over_tls: bool,
    brokers: Vec<Broker>,
    topic: StrBytes,
    key: Option<Bytes>,
    acks: i16,
    timeout: Duration,
    refresh: Duration,
    /// None before the first message and after a failure.
    cluster: Mutex<Option<Cluster>>,
    /// How many requests were sent: without a key, they go to the partitions in turn.
    turn: AtomicUsize,
}

/// What is known of the cluster, and connections to its brokers.
struct Cluster {
    since: Instant,
    addresses: HashMap<i32, Address>,
    /// The login of the broker that named the others.
    login: Option<SaslConfig>,
    /// The number of each partition in order, and its leader, if it has one.
    partitions: Vec<(i32, Option<i32>)>,
    connections: HashMap<Address, Connection>,
}

impl Producer {
    pub(super) fn new(config: &Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let dialer = match &config.tls {
            Some(tls) => build.tls_dialer(tls.verify, "config.tls.verify: false")?,
            None => build.dialer(),
        };
        Ok(Self {
            dialer,
            is_over_tls: config.tls.is_some(),
            brokers: config.brokers(),
            topic: StrBytes::from_string(config.kafka_topic.clone()),
            key: config.key.clone().map(Bytes::from),
            acks: i16::try_from(config.required_acks).unwrap_or(1),
            timeout: config.timeout(),
            refresh: Duration::from_secs(config.meta_refresh_interval.into()),
            cluster: Mutex::default(),
            turn: AtomicUsize::new(fastrand::usize(..)),
        })
    }

    /// Sends messages to one partition. If that fails over connections that were kept, it is tried once more over new
    /// ones, because the broker may have closed an idle connection, or another one may lead the partition now.
    pub(super) async fn send(&self, messages: &[Bytes]) -> Result<(), SendError> {
        let mut cluster = self.cluster.lock().await;
        let was_kept = cluster.is_some();
        let mut sent = self.try_send(&mut cluster, messages).await;
        if was_kept && sent.as_ref().is_err_and(|failed| failed.error.may_be_stale()) {
            *cluster = None;
            sent = self.try_send(&mut cluster, messages).await;
        }
        if sent.is_err() {
            *cluster = None;
        }
        sent
    }

    async fn try_send(&self, known: &mut Option<Cluster>, messages: &[Bytes]) -> Result<(), SendError> {
        let cluster = match known {
            Some(cluster) if cluster.since.elapsed() < self.refresh => cluster,
            _ => {
                let former = known.take().map(|cluster| (cluster.connections, cluster.login));
                let (connections, named_with) = former.unwrap_or_default();
                known.insert(self.discover(connections, named_with.as_ref()).await?)
            }
        };
        let (partition, address) = self.partition(cluster)?;
        let at = |error| self.failed(&address, error);
        let mut connection = match cluster.connections.remove(&address) {
            Some(connection) => connection,
            None => {
                let login = login(&self.brokers, &address, cluster.login.as_ref());
                self.connect(&address, login).await.map_err(at)?
            }
        };
        self.in_time(self.produce(&mut connection, partition, messages)).await.map_err(at)?;
        cluster.connections.insert(address, connection);
        Ok(())
    }

    /// Asks a broker for the topic's partitions: over a connection that is open, or the first of the configured brokers that
    /// answers.
    async fn discover(
        &self,
        mut connections: HashMap<Address, Connection>,
        named_with: Option<&SaslConfig>,
    ) -> Result<Cluster, SendError> {
        let open = connections.keys().next().cloned();
        let configured = self.brokers.iter().map(|broker| (broker.host.clone(), broker.port));
        let mut last = None;
        for address in open.into_iter().chain(configured) {
            let login = login(&self.brokers, &address, named_with);
            match self.ask(connections.remove(&address), &address, login).await {
                Ok((metadata, connection)) => {
                    connections.insert(address.clone(), connection);
                    let read = Cluster::read(metadata, connections, login.cloned());
                    return read.map_err(|error| self.failed(&address, error));
                }
                Err(error) => last = Some(self.failed(&address, error)),
            }
        }
        let nowhere = || self.failed(&(String::new(), 0), KafkaError::Malformed("no broker".to_owned()));
        Err(last.unwrap_or_else(nowhere))
    }

    async fn ask(
        &self,
        open: Option<Connection>,
        address: &Address,
        login: Option<&SaslConfig>,
    ) -> Result<(Metadata, Connection), KafkaError> {
        let mut connection = match open {
            Some(connection) => connection,
            None => self.connect(address, login).await?,
        };
        let topic = MetadataRequestTopic::default().with_name(Some(TopicName(self.topic.clone())));
        let request = MetadataRequest::default().with_topics(Some(vec![topic]));
        let metadata = self.in_time(connection.call(&request)).await?;
        if metadata.topic != *self.topic {
            return Err(KafkaError::Malformed("an answer for another topic".to_owned()));
        }
        Ok((metadata, connection))
    }

    async fn connect(
        &self,
        (host, port): &Address,
        login: Option<&SaslConfig>,
    ) -> Result<Connection, KafkaError> {
        self.in_time(async {
            let tcp = self.dialer.tcp(host, *port).await?;
            let mut connection = match self.is_over_tls {
                true => Connection::over(self.dialer.tls(host, tcp).await?),
                false => Connection::over(tcp),
            };
            if let Some(login) = login {
                connection.log_in(login).await?;
            }
            Ok(connection)
        })
        .await
    }

    /// The partition for the next request, and the address of its leader.
    fn partition(&self, cluster: &Cluster) -> Result<(i32, Address), SendError> {
        let partitions = &cluster.partitions;
        let at = |place: usize| partitions.get(place % partitions.len().max(1)).copied();
        let chosen = match &self.key {
            Some(key) => at(KEY_HASH.checksum(key) as usize),
            None => {
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                let mut from_here = (0..partitions.len()).filter_map(|more| at(turn.wrapping_add(more)));
                from_here.find(|(_, leader)| leader.is_some())
            }
        };
        let leader =
            chosen.and_then(|(partition, leader)| Some((partition, cluster.addresses.get(&leader?)?)));
        let leader = leader.map(|(partition, address)| (partition, address.clone()));
        leader.ok_or_else(|| {
            let (host, port) =
                self.brokers.first().map(|broker| (&*broker.host, broker.port)).unwrap_or_default();
            self.failed(&(host.to_owned(), port), KafkaError::Refused(ResponseError::LeaderNotAvailable))
        })
    }

    async fn produce(
        &self,
        connection: &mut Connection,
        partition: i32,
        messages: &[Bytes],
    ) -> Result<(), KafkaError> {
        let mut records = BytesMut::new();
        let encoded = RecordBatchEncoder::encode(&mut records, &self.records(messages), &RECORDS);
        encoded.map_err(|error| KafkaError::Malformed(error.to_string()))?;
        let data = PartitionProduceData::default().with_index(partition).with_records(Some(records.freeze()));
        let topic = TopicProduceData::default().with_name(TopicName(self.topic.clone()));
        let request = ProduceRequest::default()
            .with_acks(self.acks)
            .with_timeout_ms(i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX))
            .with_topic_data(vec![topic.with_partition_data(vec![data])]);
        if self.acks == 0 {
            return connection.send(&request).await;
        }
        let response = connection.call(&request).await?;
        response.confirm(&self.topic, partition)
    }

    fn records(&self, messages: &[Bytes]) -> Vec<Record> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let timestamp = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        let record = |(offset, message): (i32, &Bytes)| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            timestamp_type: TimestampType::Creation,
            offset: offset.into(),
            // The first of a batch has none, -1, and the others follow it.
            sequence: offset - 1,
            timestamp,
            key: self.key.clone(),
            value: Some(message.clone()),
            headers: Default::default(),
        };
        (0..).zip(messages).map(record).collect()
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, KafkaError>>) -> Result<T, KafkaError> {
        tokio::time::timeout(self.timeout, work).await.unwrap_or(Err(KafkaError::Timeout))
    }

    fn failed(&self, (host, port): &Address, error: KafkaError) -> SendError {
        SendError { broker: format!("{host}:{port}"), topic: self.topic.to_string(), error }
    }
}

impl Cluster {
    /// What a broker says, the connections that are open, and the login of that broker.
    fn read(
        metadata: Metadata,
        connections: HashMap<Address, Connection>,
        login: Option<SaslConfig>,
    ) -> Result<Self, KafkaError> {
        if let Some(error) = metadata.error_code.err() {
            return Err(KafkaError::Refused(error));
        }
        let Metadata { addresses, mut partitions, .. } = metadata;
        partitions.sort_by_key(|(index, _)| *index);
        Ok(Self { since: Instant::now(), addresses, login, partitions, connections })
    }
}
