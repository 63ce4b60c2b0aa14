//! The one question that scripts of the original service ask over SNMP: how much of a
//! resynchronisation is left (docs/compat/timer-service.md §9.3). The node is a subagent of the
//! machine's SNMP daemon, as the original is: it opens no port.

mod agentx;
pub(super) mod remaining;
pub(super) mod subagent;
