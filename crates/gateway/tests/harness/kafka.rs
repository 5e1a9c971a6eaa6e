//! Brokers of Apache Kafka, and Kafka's own clients: from the jars that `KAFKA` names, in folders of their own, on free ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::{Identity, PATIENCE, unused_ports};
use std::fs::{self, File};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The JVMs start quickly and stay small.
const JVM: [&str; 4] = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"];

/// How long a JVM may take to start on a slow machine that runs other tests.
const START: Duration = PATIENCE.saturating_mul(6);

/// Ends a message in what the consumer prints, because messages may have several lines.
const END: &str = "#end#";

/// A broker that is its own controller; killed when dropped.
pub struct KafkaBroker {
    jars: PathBuf,
    /// None until it is started.
    child: Option<Child>,
    folder: TempDir,
    /// Clients in clear, clients that log in, clients over TLS, and the controller.
    ports: [u16; 4],
}

/// What a consumer gets.
#[derive(Debug, Clone, PartialEq)]
pub struct KafkaMessage {
    pub partition: u32,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// `null` without a key.
    pub key: String,
    pub value: String,
}

impl KafkaBroker {
    /// Starts one, whose user `weir` has the password `hunter2`; none where the jars are missing. Topics have three
    /// partitions, and are created by the first message if `creates_topics`.
    pub fn start(identity: &Identity, creates_topics: bool) -> Option<KafkaBroker> {
        let jars =
            std::env::var_os("KAFKA").map(PathBuf::from).filter(|path| path.join("installed").exists())?;
        for _ in 0..10 {
            let first = unused_ports(4);
            let ports = [first, first + 1, first + 2, first + 3];
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("properties"), properties(&folder, ports, identity, creates_topics))
                .unwrap();
            let mut broker = KafkaBroker { child: None, jars: jars.clone(), folder, ports };
            broker.format();
            broker.child = Some(broker.spawn());
            if broker.listens() {
                return Some(broker);
            }
        }
        panic!("Kafka does not start: is Java 17 installed?");
    }

    /// Where clients connect in clear.
    pub fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Where clients log in.
    pub fn sasl_port(&self) -> u16 {
        self.ports[1]
    }

    /// Where clients connect over TLS.
    pub fn tls_port(&self) -> u16 {
        self.ports[2]
    }

    fn java(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("java");
        command.args(JVM).arg("-cp").arg(self.jars.join("*")).args(arguments);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Runs a tool to its end, and returns what it prints.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.java(arguments).output().expect("java runs");
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{error}");
        out.into_owned()
    }

    fn format(&self) {
        let scram = |hash: &str| format!("SCRAM-SHA-{hash}=[name=weir,password=hunter2]");
        self.run(&[
            "kafka.tools.StorageTool",
            "format",
            "--config",
            "properties",
            "--cluster-id",
            "4L6g3nShT-eMCtK--X86sw",
            "--add-scram",
            &scram("256"),
            "--add-scram",
            &scram("512"),
        ]);
    }

    fn spawn(&self) -> Child {
        let log = || File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let mut command = self.java(&["kafka.Kafka", "properties"]);
        command.stdout(log()).stderr(log()).spawn().expect("java runs")
    }

    fn listens(&mut self) -> bool {
        let (end, port) = (Instant::now() + START, self.port());
        let mut runs = || self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none());
        while Instant::now() < end && runs() {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return true;
            }
            thread::park_timeout(Duration::from_millis(50));
        }
        false
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again, with what it had.
    pub fn restart(&mut self) {
        self.child = Some(self.spawn());
        assert!(self.listens(), "it does not start again");
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Creates a topic.
    pub fn create_topic(&self, topic: &str) {
        let (tool, server) = ("org.apache.kafka.tools.TopicCommand", self.address());
        self.run(&[tool, "--bootstrap-server", &server, "--create", "--topic", topic, "--partitions", "3"]);
    }

    /// How many messages all topics have.
    pub fn message_count(&self) -> u64 {
        let tool = "org.apache.kafka.tools.GetOffsetShell";
        let text = self.run(&[tool, "--bootstrap-server", &self.address(), "--exclude-internal-topics"]);
        // TOPIC:PARTITION:COUNT
        text.lines().filter_map(|line| line.rsplit(':').next()?.parse::<u64>().ok()).sum()
    }

    /// The first so many messages of a topic, by Kafka's own consumer.
    pub fn consume(&self, topic: &str, count: usize) -> Vec<KafkaMessage> {
        let (server, count_text) = (self.address(), count.to_string());
        let separator = format!("line.separator={END}");
        let mut arguments = vec!["org.apache.kafka.tools.consumer.ConsoleConsumer", "--from-beginning"];
        arguments.extend(["--bootstrap-server", &server, "--topic", topic, "--max-messages", &count_text]);
        arguments.extend(["--timeout-ms", "60000", "--property", &separator]);
        for shown in ["print.timestamp=true", "print.partition=true", "print.key=true"] {
            arguments.extend(["--property", shown]);
        }
        let text = self.run(&arguments);
        let messages: Vec<_> = text.split_terminator(END).map(message).collect();
        assert_eq!(messages.len(), count, "{text}");
        messages
    }
}

/// `CreateTime:MILLISECONDS`, `Partition:NUMBER`, the key and the value, with tabulators between.
fn message(text: &str) -> KafkaMessage {
    let parts: Vec<_> = text.splitn(4, '\t').collect();
    let [timestamp, partition, key, value] = parts[..] else { panic!("{text}") };
    let number = |text: &str| text.rsplit(':').next().and_then(|number| number.parse().ok()).expect(text);
    KafkaMessage {
        partition: number(partition) as u32,
        timestamp: number(timestamp),
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

fn properties(folder: &TempDir, ports: [u16; 4], identity: &Identity, creates_topics: bool) -> String {
    let pem = folder.path().join("identity.pem");
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    fs::write(&pem, read(identity.key()) + &read(identity.cert())).unwrap();
    let [clear, sasl, tls, controller] = ports.map(|port| format!("127.0.0.1:{port}"));
    let login = |mechanism: &str, module: &str, users: &str| {
        let module = format!("org.apache.kafka.common.security.{module}LoginModule required{users};");
        format!("listener.name.sasl.{mechanism}.sasl.jaas.config={module}\n")
    };
    let logins = [
        login("plain", "plain.Plain", " user_weir=\"hunter2\""),
        login("scram-sha-256", "scram.Scram", ""),
        login("scram-sha-512", "scram.Scram", ""),
    ];
    format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{controller}\n\
         listeners=CLEAR://{clear},SASL://{sasl},TLS://{tls},CONTROLLER://{controller}\n\
         advertised.listeners=CLEAR://{clear},SASL://{sasl},TLS://{tls}\n\
         listener.security.protocol.map=CLEAR:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT\n\
         controller.listener.names=CONTROLLER\ninter.broker.listener.name=CLEAR\n\
         sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n{logins}\
         ssl.keystore.type=PEM\nssl.keystore.location={pem}\n\
         log.dirs={logs}\nnum.partitions=3\nauto.create.topics.enable={creates_topics}\n\
         offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n\
         transaction.state.log.num.partitions=1\ntransaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\nshare.coordinator.state.topic.replication.factor=1\n\
         group.initial.rebalance.delay.ms=0\n",
        logins = logins.concat(),
        pem = pem.display(),
        logs = folder.path().join("data").display(),
    )
}

impl Drop for KafkaBroker {
    fn drop(&mut self) {
        self.kill();
    }
}
