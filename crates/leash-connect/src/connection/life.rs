//! The driver of [`crate::machine`]: applies events to a connection's life and performs the effects.

use std::{cell::Ref, rc::Rc};

use hyper::{Method, StatusCode, Uri};

use super::Connection;
use crate::machine::{ConnectionLife, Effect, Event, GoneReason, SessionNumber, State, UpstreamTransport};
use crate::response::RequestFailure;
use leash_upstream::delete::{self, DeleteResult};
use leash_upstream::{lost::Lost, notice::Notice};

impl Connection {
    /// The connection's life, to read it.
    pub(crate) fn life(&self) -> Ref<'_, ConnectionLife> {
        self.life.borrow()
    }

    /// The number of sessions and streams opened so far.
    pub(crate) fn generation(&self) -> u64 {
        self.life().generation()
    }

    /// True if the connection is in this state.
    pub(crate) fn is(&self, state: &State) -> bool {
        self.life().state() == state
    }

    /// The address for messages by Streamable HTTP.
    pub(crate) fn endpoint(&self) -> Uri {
        match self.life().transport() {
            UpstreamTransport::Streamable(endpoint) => endpoint.clone(),
            UpstreamTransport::Unknown | UpstreamTransport::HttpSse(_) => self.upstream.url.clone(),
        }
    }

    /// Applies an event and performs its effects. The only place where a connection's life changes.
    pub(crate) fn apply(self: &Rc<Self>, event: Event) {
        let effects = self.life.borrow_mut().apply(event);
        effects.into_iter().for_each(|effect| self.perform(effect));
    }

    /// Reports that the upstream refused a message of this generation because it has lost the session.
    pub(crate) fn session_lost(self: &Rc<Self>, generation: u64, failure: &RequestFailure) {
        let gone = match failure {
            RequestFailure::Refused(refusal) if refusal.lost(&Method::POST) == Some(Lost::Forgotten) => {
                Some(GoneReason::Forgotten)
            }
            RequestFailure::StreamClosed => Some(GoneReason::StreamClosed),
            _ => None,
        };
        self.apply(Event::SessionLost { generation, gone });
    }

    fn perform(self: &Rc<Self>, effect: Effect) {
        match effect {
            Effect::Hold(session) => {
                let written = self.sessions.borrow_mut().hold(session);
                self.notices.check_written(written);
                if session.is_some() {
                    let (session, server) = self.sessions.borrow().names();
                    self.notices.tell(Notice::Opened { session, server, client: None });
                }
            }
            Effect::HoldUntilEnded(session) => {
                let told = self.sessions.borrow_mut().hold_until_ended(session);
                self.notices.check_written(told);
            }
            Effect::Delete(session) => self.delete(session),
            Effect::RecordGone(session, gone) => {
                let how = match gone {
                    GoneReason::Forgotten => DeleteResult::forgotten(StatusCode::NOT_FOUND),
                    GoneReason::StreamClosed => DeleteResult::closed(),
                };
                let written = self.sessions.borrow_mut().gone(session, &how);
                self.notices.check_written(written);
            }
            Effect::RecordVersion(version) => {
                let written = self.sessions.borrow_mut().agreed(&version);
                self.notices.check_written(written);
            }
            Effect::StopListener => {
                if let Some(listener) = self.traffic.borrow_mut().listener.take() {
                    listener.cancel();
                }
            }
            Effect::SuspendOutbox => self.traffic.borrow_mut().outbox.suspend(),
            Effect::ResumeOutbox => {
                self.traffic.borrow_mut().outbox.resume();
                self.wake.notify_one();
            }
            Effect::Revive => {
                self.revival_due.set(true);
                self.wake.notify_one();
            }
            Effect::EndPause => self.end_pause.notify_one(),
            Effect::AnnounceEnd(why) => {
                let (session, server) = self.sessions.borrow().names();
                self.notices.tell(Notice::Ending { session, server, client: None, why });
                self.sessions.borrow().ending();
                self.wake.notify_one();
            }
        }
    }

    /// Ends a session in a task that goes on when the connection ends. The end waits for it.
    fn delete(self: &Rc<Self>, session: SessionNumber) {
        let connection = Rc::clone(self);
        self.tasks.spawn_local(async move {
            let delete_target = connection.sessions.borrow().delete_target(session);
            let how = match delete_target {
                Some(delete_target) => delete::delete(&connection.delete_client, &delete_target).await,
                None => DeleteResult::closed(),
            };
            let told = connection.sessions.borrow_mut().ended(session, &how);
            connection.notices.check_written(told);
            connection.apply(Event::SessionEnded { session, cut_short: how.cut_short });
        });
    }
}
