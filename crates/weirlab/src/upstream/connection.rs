//! One client's connection: reads requests, drains their bodies, answers.
use super::answer::{Choice, Ending};
use super::echo::{self, Echo};
use super::stream::Stream;
use super::{Plan, frame, http2};
use crate::event_loop::{Received, Socket};
use crate::websocket::Malformed;
use rustix::event::epoll::EventFlags;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use weir_http1::{BodyDecoder, Framing, Limits, Method, ParseError, RequestHead, Version, encode};

const LIMITS: Limits = Limits {
    max_head_bytes: 64 * 1024,
    max_fields: 256,
    max_target_bytes: 32 * 1024,
    max_field_bytes: usize::MAX,
};
/// Holds the largest head, and what came after it.
const SCRATCH_BYTES: usize = 128 * 1024;
/// Bodies up to this size are copied behind their heads; larger ones are sent from where they are.
const COPIED_BYTES: usize = 16 * 1024;
/// Answers to pipelined requests that are gathered before they are sent.
const GATHERED_BYTES: usize = 64 * 1024;
/// How often one connection is read before others have their turn.
const TURNS: usize = 32;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What the connections of a thread share, so that none allocates for a request.
pub(super) struct Workspace {
    pub(super) plan: Arc<Plan>,
    scratch: Vec<u8>,
    gathered: Vec<u8>,
    head: RequestHead,
    random: fastrand::Rng,
    answered: u64,
}

impl Workspace {
    pub(super) fn new(plan: Arc<Plan>, thread: u64) -> Self {
        let random = fastrand::Rng::with_seed(plan.seed.wrapping_add(thread));
        let scratch = vec![0; SCRATCH_BYTES];
        Self { plan, scratch, gathered: Vec::new(), head: RequestHead::default(), random, answered: 0 }
    }
}

pub(super) struct Connection {
    stream: Stream,
    /// Bytes of requests that were not used yet.
    inbox: Vec<u8>,
    /// The inbox is of no use without more bytes.
    wants_more: bool,
    stage: Stage,
    /// The rest of a large body: whose, and from where on.
    rest: Option<(Ending, usize)>,
    /// The answer of a template.
    filled: Vec<u8>,
}

enum Stage {
    /// The next request is awaited.
    Idle,
    /// A request was read but for its body.
    Body(BodyDecoder, Choice),
    /// A request was read, and waits for a worker.
    InLine(Choice),
    /// A request was read; its answer is held back.
    HeldBack(Choice),
    /// Its time has come.
    Due(Choice),
    /// A part of its body was sent; the chunk of this number is held back.
    Pausing(Ending, usize),
    /// The time of that chunk has come.
    ChunkDue(Ending, usize),
    /// It was HTTP/2 from the first byte on.
    Http2(Box<http2::Session>),
    /// It has become a WebSocket.
    Echo(Box<Echo>),
    /// Nothing follows what is being sent.
    Closing,
    /// The same, and what the client still sends is thrown away, so that it reads the answer.
    Lingering,
    /// The end was sent to the client.
    Drained,
}

/// What a connection waits for.
pub(super) enum Next {
    Wait,
    Again,
    HoldBack(Duration),
    /// The same once a worker is free.
    WaitInLine(Duration),
    Close,
}

/// Why no further request is looked at now.
enum Stop {
    WantsMore,
    Busy,
    HoldBack(Duration),
    WaitInLine(Duration),
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        let (inbox, filled) = (Vec::new(), Vec::new());
        Self { stream, inbox, wants_more: false, stage: Stage::Idle, rest: None, filled }
    }

    pub(super) fn socket(&self) -> &Socket {
        self.stream.socket()
    }

    pub(super) fn note(&mut self, flags: EventFlags) {
        self.stream.note(flags);
    }

    /// A worker begins with the request.
    pub(super) fn begin_work(&mut self) {
        if let Stage::InLine(choice) = self.stage {
            self.stage = Stage::HeldBack(choice);
        }
    }

    /// The time of what was held back has come.
    pub(super) fn release(&mut self) {
        match self.stage {
            Stage::HeldBack(choice) => self.stage = Stage::Due(choice),
            Stage::Pausing(ending, number) => self.stage = Stage::ChunkDue(ending, number),
            _ => {}
        }
    }

    /// Goes on as far as can be.
    pub(super) fn drive(&mut self, workspace: &mut Workspace) -> io::Result<Next> {
        let mut scratch = std::mem::take(&mut workspace.scratch);
        let next = self.drive_with(workspace, &mut scratch);
        workspace.scratch = scratch;
        next
    }

    fn drive_with(&mut self, workspace: &mut Workspace, scratch: &mut [u8]) -> io::Result<Next> {
        for _ in 0..TURNS {
            if !self.flush(workspace)? {
                return Ok(Next::Wait);
            }
            match self.stage {
                Stage::Closing => return Ok(Next::Close),
                Stage::InLine(_) | Stage::Pausing(..) if self.socket().is_ending() => return Ok(Next::Close),
                Stage::InLine(_) | Stage::HeldBack(_) | Stage::Pausing(..) => return Ok(Next::Wait),
                Stage::Lingering | Stage::Drained => return self.drain(scratch),
                _ => {}
            }
            let filled = match self.fill(scratch)? {
                Received::Bytes(filled) => filled,
                Received::Nothing => return Ok(Next::Wait),
                Received::End => return Ok(Next::Close),
            };
            let (used, stop) = self.process(workspace, &scratch[..filled])?;
            self.inbox.extend_from_slice(&scratch[used..filled]);
            self.send_gathered(&mut workspace.gathered)?;
            self.wants_more = matches!(stop, Stop::WantsMore);
            match stop {
                Stop::HoldBack(delay) => return Ok(Next::HoldBack(delay)),
                Stop::WaitInLine(delay) => return Ok(Next::WaitInLine(delay)),
                Stop::WantsMore | Stop::Busy => {}
            }
        }
        Ok(Next::Again)
    }

    /// Sends what is owed; whether nothing is left.
    fn flush(&mut self, workspace: &Workspace) -> io::Result<bool> {
        if !self.stream.flush()? {
            return Ok(false);
        }
        let Some((ending, sent)) = self.rest else { return Ok(true) };
        let body = workspace.plan.answers.body(ending);
        let sent = sent + self.stream.offer(&body[sent..])?;
        self.rest = (sent < body.len()).then_some((ending, sent));
        Ok(self.rest.is_none())
    }

    /// Fills the scratch with the bytes to look at: those that were left, and new ones if they do not suffice.
    fn fill(&mut self, scratch: &mut [u8]) -> io::Result<Received> {
        let held = self.inbox.len();
        if held == 0 {
            return if matches!(self.stage, Stage::Due(_) | Stage::ChunkDue(..)) {
                Ok(Received::Bytes(0))
            } else {
                self.stream.receive(scratch)
            };
        }
        let mut filled = held;
        if self.wants_more {
            match self.stream.receive(&mut scratch[held..])? {
                Received::Bytes(count) => filled += count,
                other => return Ok(other),
            }
        }
        scratch[..held].copy_from_slice(&self.inbox);
        self.inbox.clear();
        Ok(Received::Bytes(filled))
    }

    /// Answers the requests in the input; how much of it was used.
    fn process(&mut self, workspace: &mut Workspace, input: &[u8]) -> io::Result<(usize, Stop)> {
        let mut used = 0;
        loop {
            let step = match std::mem::replace(&mut self.stage, Stage::Idle) {
                Stage::Idle => self.begin(workspace, &input[used..]),
                Stage::Body(body, choice) => self.read_body(workspace, body, choice, &input[used..]),
                Stage::Due(choice) => Ok((0, self.answer(workspace, choice)?)),
                Stage::ChunkDue(ending, number) => Ok((0, self.send_chunk(workspace, ending, number))),
                Stage::Http2(session) => return Ok(self.converse(workspace, session, input, used)),
                Stage::Echo(echo) => return Ok(self.echo(workspace, echo, input, used)),
                other => {
                    self.stage = other;
                    return Ok((used, Stop::Busy));
                }
            };
            let (taken, stop) =
                step.unwrap_or_else(|reject| (input.len() - used, self.refuse(workspace, reject)));
            used += taken;
            if matches!(self.stage, Stage::Closing) && used < input.len() {
                self.stage = Stage::Lingering;
            }
            if let Some(stop) = stop {
                return Ok((used, stop));
            }
        }
    }

    /// Reads a head and chooses the answer.
    fn begin(
        &mut self,
        workspace: &mut Workspace,
        input: &[u8],
    ) -> Result<(usize, Option<Stop>), ParseError> {
        let Workspace { plan, head, random, gathered, answered, .. } = workspace;
        let beginning = &http2::PREFACE[..http2::PREFACE.len().min(input.len())];
        if input.starts_with(beginning) && !input.is_empty() {
            if beginning.len() < http2::PREFACE.len() {
                return Ok((0, Some(Stop::WantsMore)));
            }
            self.stage = Stage::Http2(Box::new(http2::Session::begin(gathered)));
            return Ok((beginning.len(), None));
        }
        let Some(taken) = head.parse(input, &LIMITS)? else {
            // The next bytes may be another connection's.
            head.clear();
            return Ok((0, Some(Stop::WantsMore)));
        };
        if let Some(key) = echo::key(head) {
            echo::write_grant(gathered, key);
            self.stage = Stage::Echo(Box::default());
            return Ok((taken, None));
        }
        *answered += 1;
        let ending = match head.version {
            Version::Http10 => Ending::Http10,
            _ if head.keep_alive => Ending::Keep,
            _ => Ending::Close,
        };
        let choice = plan.answers.choose(ending, head.method == Method::Head, random);
        if plan.answers.is_template() {
            self.filled.clear();
            plan.answers.fill(choice, head, *answered, &mut self.filled);
        }
        if head.expect_continue {
            gathered.extend_from_slice(CONTINUE);
        }
        match head.framing {
            Framing::None | Framing::Length(0) => Ok((taken, self.complete(workspace, choice))),
            framing => {
                self.stage = Stage::Body(BodyDecoder::new(framing), choice);
                Ok((taken, None))
            }
        }
    }

    /// Takes in frames of HTTP/2 and answers them.
    fn converse(
        &mut self,
        workspace: &mut Workspace,
        mut session: Box<http2::Session>,
        input: &[u8],
        used: usize,
    ) -> (usize, Stop) {
        let Workspace { plan, random, gathered, .. } = workspace;
        match session.take(&input[used..], plan, random, gathered) {
            Ok(taken) => {
                self.stage = Stage::Http2(session);
                (used + taken, Stop::WantsMore)
            }
            Err(frame::Malformed) => self.give_up(input),
        }
    }

    /// Returns messages.
    fn echo(
        &mut self,
        workspace: &mut Workspace,
        mut echo: Box<Echo>,
        input: &[u8],
        used: usize,
    ) -> (usize, Stop) {
        match echo.take(&input[used..], &mut workspace.gathered) {
            Ok(_) if echo.is_over() => self.give_up(input),
            Ok(taken) => {
                self.stage = Stage::Echo(echo);
                (used + taken, Stop::WantsMore)
            }
            Err(Malformed) => self.give_up(input),
        }
    }

    /// The connection ends once what is owed is sent.
    fn give_up(&mut self, input: &[u8]) -> (usize, Stop) {
        self.stage = Stage::Lingering;
        (input.len(), Stop::Busy)
    }

    fn read_body(
        &mut self,
        workspace: &mut Workspace,
        mut body: BodyDecoder,
        choice: Choice,
        input: &[u8],
    ) -> Result<(usize, Option<Stop>), ParseError> {
        let mut used = 0;
        while used < input.len() && !body.is_done() {
            used += body.decode(&input[used..])?.consumed;
        }
        if body.is_done() {
            return Ok((used, self.complete(workspace, choice)));
        }
        self.stage = Stage::Body(body, choice);
        Ok((used, Some(Stop::WantsMore)))
    }

    /// The whole request was read: its answer is due, at once or later.
    fn complete(&mut self, workspace: &mut Workspace, choice: Choice) -> Option<Stop> {
        let Some(delay) = workspace.plan.delay else {
            self.stage = Stage::Due(choice);
            return None;
        };
        let takes = delay.draw(&mut workspace.random);
        let is_in_line = workspace.plan.at_once.is_some();
        self.stage = if is_in_line { Stage::InLine(choice) } else { Stage::HeldBack(choice) };
        Some(if is_in_line { Stop::WaitInLine(takes) } else { Stop::HoldBack(takes) })
    }

    fn answer(&mut self, workspace: &mut Workspace, choice: Choice) -> io::Result<Option<Stop>> {
        self.stage = if choice.ending() == Ending::Keep { Stage::Idle } else { Stage::Closing };
        let Workspace { plan, gathered, .. } = workspace;
        if plan.answers.is_template() {
            gathered.extend_from_slice(&self.filled);
        } else {
            let body = plan.answers.write_head(choice, gathered);
            if plan.event_pause.is_some() && plan.at_once.is_none() && !body.is_empty() {
                return Ok(self.send_chunk(workspace, choice.ending(), 0));
            }
            if body.len() > COPIED_BYTES {
                self.send_gathered(gathered)?;
                return self.send_large(choice, body);
            }
            gathered.extend_from_slice(body);
        }
        if gathered.len() > GATHERED_BYTES {
            self.send_gathered(gathered)?;
            return Ok(Some(Stop::Busy));
        }
        Ok(None)
    }

    /// Sends a chunk of the body; the next, if there is one, after a pause.
    fn send_chunk(&mut self, workspace: &mut Workspace, ending: Ending, number: usize) -> Option<Stop> {
        let Workspace { plan, gathered, random, .. } = workspace;
        let (chunk, goes_on) = plan.answers.chunk(ending, number);
        gathered.extend_from_slice(chunk);
        if goes_on {
            self.stage = Stage::Pausing(ending, number + 1);
            return plan.event_pause.map(|pause| Stop::HoldBack(pause.draw(random)));
        }
        self.stage = if ending == Ending::Keep { Stage::Idle } else { Stage::Closing };
        None
    }

    fn send_large(&mut self, choice: Choice, body: &[u8]) -> io::Result<Option<Stop>> {
        let sent = self.stream.offer(body)?;
        self.rest = (sent < body.len()).then_some((choice.ending(), sent));
        Ok(Some(Stop::Busy))
    }

    fn send_gathered(&mut self, gathered: &mut Vec<u8>) -> io::Result<()> {
        if gathered.is_empty() {
            return Ok(());
        }
        let sent = self.stream.send(gathered);
        gathered.clear();
        sent
    }

    fn refuse(&mut self, workspace: &mut Workspace, reject: ParseError) -> Option<Stop> {
        let out = &mut workspace.gathered;
        encode::status_line(out, reject.status());
        encode::header(out, "Connection", "close");
        encode::content_length(out, 0);
        encode::end(out);
        self.stage = Stage::Lingering;
        Some(Stop::Busy)
    }

    /// Throws away what the client sends, until it stops.
    fn drain(&mut self, scratch: &mut [u8]) -> io::Result<Next> {
        if !matches!(self.stage, Stage::Drained) {
            self.stage = Stage::Drained;
            self.stream.finish_sending()?;
        }
        for _ in 0..TURNS {
            match self.stream.receive(scratch)? {
                Received::Bytes(_) => {}
                Received::Nothing => return Ok(Next::Wait),
                Received::End => return Ok(Next::Close),
            }
        }
        Ok(Next::Again)
    }
}
