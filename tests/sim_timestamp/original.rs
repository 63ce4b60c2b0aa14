//! An original server, as far as servers of this service must live with it. It takes no second look
//! at anything, writes the bound whatever its version is, and exits when it is disconnected as a
//! master.

use chronos::timestamp::oracle::{Refusal, Term};
use chronos::timestamp::{COUNTER_BITS, Timestamp};

use super::client::Told;
use super::ensemble::{Op, Reply};
use super::model::Checked;
use super::servers::Keeper;
use super::world::World;

/// How long after its exit a supervisor starts the server again.
const RESTART_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Backup,
    TakingOver,
    Serving,
}

#[derive(Debug, Default)]
pub struct Original {
    stage: Stage,
    asked: Option<Op>,
    is_changed: bool,
    assigned: u64,
    persisted: u64,
    wanted: Option<u64>,
}

impl Original {
    pub fn serves(&self) -> bool {
        self.stage == Stage::Serving
    }

    /// Answers `getTimestamps`.
    pub fn take(
        &mut self,
        wall_ms: u64,
        count: u32,
        advance_ms: u64,
    ) -> Result<(Timestamp, Option<Term>), Refusal> {
        if !self.serves() {
            return Err(Refusal::NotServing);
        }
        let (count, advance) = (u64::from(count), advance_ms << COUNTER_BITS);
        let current = wall_ms << COUNTER_BITS;
        let first = if current > self.assigned { current } else { self.assigned + 1 };
        let last = first + count - 1;
        if last >= self.persisted {
            self.wanted = Some(last + advance);
            return Err(Refusal::Window);
        }
        self.assigned = last;
        if last >= self.persisted - advance / 2 {
            self.wanted.get_or_insert(self.persisted + advance);
        }
        Ok((Timestamp(first), None))
    }
}

impl World {
    fn original(&mut self, server: usize) -> &mut Original {
        match &mut self.servers[server].keeper {
            Keeper::Original(original) => original,
            _ => unreachable!("it is an original"),
        }
    }

    fn original_asks(&mut self, server: usize, op: Op) {
        self.original(server).asked = Some(op);
        self.client_asks(server, op);
    }

    /// Stores a bound further ahead, on a thread of its own.
    pub fn original_writes(&mut self, server: usize) {
        let Keeper::Original(original) = &mut self.servers[server].keeper else { return };
        if original.asked.is_none()
            && let Some(bound) = original.wanted
        {
            let bound = Timestamp(bound);
            let op = Op::SetBound { bound, version: -1, needs_master: false };
            self.original_asks(server, op);
        }
    }

    /// Reports whether the server owns the master's node, as it believes.
    pub fn is_valid_master(&self, server: usize) -> bool {
        let session = self.servers[server].client.session;
        self.zoo.head().master.is_some_and(|master| Some(master.owner) == session)
    }

    pub fn original_told(&mut self, server: usize, told: Told) -> Checked {
        let stage = self.original(server).stage;
        match told {
            Told::Changed => {
                self.original(server).is_changed = true;
            }
            Told::Disconnected if stage == Stage::Backup => {}
            Told::Lost { .. } if stage == Stage::Backup => {
                self.original(server).asked = None;
                self.original(server).is_changed = true;
            }
            Told::Expired | Told::Disconnected | Told::Lost { .. } => {
                self.original_exits(server);
                return Ok(());
            }
            Told::Answer { reply: Reply::Expired, .. } => {
                self.original_exits(server);
                return Ok(());
            }
            Told::Answer { reply, .. } => self.original_answered(server, reply),
        }
        let original = self.original(server);
        if original.asked.is_none()
            && original.stage == Stage::Backup
            && std::mem::take(&mut original.is_changed)
        {
            self.original_asks(server, Op::CreateMaster);
        }
        Ok(())
    }

    fn original_answered(&mut self, server: usize, reply: Reply) {
        let advance = self.options.original_advance_ms << COUNTER_BITS;
        let asked = self.original(server).asked.take();
        match (asked, reply) {
            (None, Reply::Session(_)) => self.original_asks(server, Op::CreateMaster),
            (Some(Op::CreateMaster), Reply::Done) => {
                self.original(server).stage = Stage::TakingOver;
                self.original_asks(server, Op::DeleteBackup);
            }
            (Some(Op::CreateMaster), _) => self.original_asks(server, Op::CreateBackup),
            (Some(Op::CreateBackup), _) => self.original_asks(server, Op::ReadMaster),
            // The node is the server's own: of an earlier life, or made by a request whose answer
            // was lost.
            (Some(Op::ReadMaster), Reply::Master(Some(master), _)) if master.server == server => {
                self.original_asks(server, Op::DeleteMaster);
            }
            (Some(Op::ReadMaster), Reply::Master(master, _)) => {
                self.original(server).is_changed |= master.is_none();
            }
            (Some(Op::DeleteMaster), _) => self.original(server).is_changed = true,
            (Some(Op::DeleteBackup), _) => self.original_asks(server, Op::ReadBound),
            (Some(Op::ReadBound), Reply::Bound(stored)) => {
                self.original(server).assigned = stored.bound.0;
                let bound = Timestamp(stored.bound.0 + advance);
                let op = Op::SetBound { bound, version: -1, needs_master: false };
                self.original_asks(server, op);
            }
            (Some(Op::SetBound { bound, .. }), Reply::Written(_)) => {
                let original = self.original(server);
                original.persisted = bound.0;
                original.wanted = None;
                if std::mem::replace(&mut original.stage, Stage::Serving) != Stage::Serving {
                    self.trace.add(self.now_ns, "begins", [server as u64, 1, 0, 0]);
                    self.model.begins(server, true);
                }
            }
            (asked, reply) => unreachable!("{reply:?} is no answer to {asked:?}"),
        }
    }

    fn original_exits(&mut self, server: usize) {
        self.die(server);
        self.restart_later(server, RESTART_MS);
    }
}
