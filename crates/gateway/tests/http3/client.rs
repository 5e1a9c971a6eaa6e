//! A client of HTTP/3 by aioquic, which `make test` installs from the versions that `requirements.txt` names.
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(100);

/// A connection; closed when dropped.
pub(crate) struct Client {
    child: Child,
    commands: Option<ChildStdin>,
    events: Receiver<Value>,
    early: Vec<Value>,
}

impl Client {
    /// Connects for `localhost`.
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let (client, _) = Client::with(address, &json!({}));
        client
    }

    /// Connects with options, and returns what was said of that.
    #[track_caller]
    pub(crate) fn with(address: SocketAddr, options: &Value) -> (Client, Value) {
        let python = std::env::var("AIOQUIC").unwrap_or_else(|_| "python3".into());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http3/client.py");
        let mut child = Command::new(python)
            .arg(script)
            .args([address.ip().to_string(), address.port().to_string(), options.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python runs: `make test` installs aioquic and names its Python in AIOQUIC");
        let (commands, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let (told, events) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = told.send(serde_json::from_str(&line).expect("a line of JSON"));
            }
        });
        let mut client = Client { child, commands, events, early: Vec::new() };
        let said = client.next();
        (client, said)
    }

    /// What comes next.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        self.events.recv_timeout(PATIENCE).expect("the client says something, in time")
    }

    /// The next event that has this member with this value.
    #[track_caller]
    pub(crate) fn event(&mut self, member: &str, is: impl Fn(&Value) -> bool) -> Value {
        let fits = |event: &Value| event.get(member).is_some_and(&is);
        if let Some(at) = self.early.iter().position(fits) {
            return self.early.remove(at);
        }
        loop {
            let event = self.next();
            if fits(&event) {
                return event;
            }
            self.early.push(event);
        }
    }

    /// The response to a request of this name.
    #[track_caller]
    pub(crate) fn response(&mut self, name: &str) -> Response {
        Response(self.event("name", |given| given == name))
    }

    /// The first response to any of these requests.
    #[track_caller]
    pub(crate) fn first_response(&mut self, names: &[&str]) -> Response {
        Response(self.event("name", |given| names.iter().any(|name| given == name)))
    }

    /// The same; none where the connection ends before.
    pub(crate) fn response_or_end(&mut self, name: &str) -> Option<Response> {
        let is_end = |event: &Value| event.get("closed").is_some();
        let is_response = |event: &Value| event.get("name").is_some_and(|given| given == name);
        loop {
            if let Some(at) = self.early.iter().position(is_response) {
                return Some(Response(self.early.remove(at)));
            }
            if self.early.iter().any(is_end) {
                return None;
            }
            let event = self.events.recv_timeout(PATIENCE).ok()?;
            self.early.push(event);
        }
    }

    /// Whether the server has said so far that it takes no more requests.
    pub(crate) fn is_leaving(&mut self) -> bool {
        self.early.extend(self.events.try_iter());
        self.early.iter().any(|event| event.get("goaway").is_some() || event.get("closed").is_some())
    }

    /// The code that the connection is closed with.
    #[track_caller]
    pub(crate) fn closed(&mut self) -> u64 {
        self.event("closed", |_| true)["closed"].as_u64().unwrap()
    }

    /// Sends a command.
    pub(crate) fn send(&mut self, command: &Value) -> &mut Client {
        let commands = self.commands.as_mut().unwrap();
        writeln!(commands, "{command}").expect("the client runs");
        self
    }

    /// Sends a request of a name, with more members of the command.
    pub(crate) fn ask(&mut self, name: &str, line: (&str, &str), more: &Value) -> &mut Client {
        let fields = json!([
            [":method", line.0],
            [":scheme", "https"],
            [":authority", "localhost"],
            [":path", line.1]
        ]);
        self.ask_with(name, fields, more)
    }

    /// The same with fields of the caller's own.
    pub(crate) fn ask_with(&mut self, name: &str, fields: Value, more: &Value) -> &mut Client {
        let mut command = json!({"do": "ask", "name": name, "fields": fields});
        for (member, value) in more.as_object().into_iter().flatten() {
            match (member.as_str(), value) {
                ("add", Value::Array(added)) => {
                    command["fields"].as_array_mut().unwrap().extend(added.clone());
                }
                _ => command[member] = value.clone(),
            }
        }
        self.send(&command)
    }

    /// The response to a GET.
    #[track_caller]
    pub(crate) fn get(&mut self, path: &str) -> Response {
        self.ask("get", ("GET", path), &json!({})).response("get")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a request came to.
#[derive(Debug)]
pub(crate) struct Response(pub(crate) Value);

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.field(":status").and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        value(&self.0["fields"], name)
    }

    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        value(&self.0["trailers"], name)
    }

    pub(crate) fn text(&self) -> &str {
        self.0["text"].as_str().unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0["bytes"].as_u64().unwrap()
    }

    /// The code that the stream was reset with.
    pub(crate) fn reset(&self) -> Option<u64> {
        self.0["reset"].as_u64()
    }
}

fn value<'f>(fields: &'f Value, name: &str) -> Option<&'f str> {
    let field = fields.as_array()?.iter().find(|field| field[0] == name)?;
    field[1].as_str()
}
