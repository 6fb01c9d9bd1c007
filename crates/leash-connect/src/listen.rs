//! The stream for a legacy server's own messages. leash opens it after the handshake, and again whenever it breaks, for
//! as long as the session lives.

use std::rc::Rc;

use tokio_util::sync::CancellationToken;

use crate::get_stream::{self, Unavailable};
use crate::{backoff::BackOff, connection::Connection, event_stream::ResumePoint, receive};

/// Starts a listener for the session in use and stops the previous listener.
pub(crate) fn begin(connection: &Rc<Connection>) {
    let token = CancellationToken::new();
    {
        let mut traffic = connection.traffic.borrow_mut();
        if let Some(before) = traffic.listener.replace(token.clone()) {
            before.cancel();
        }
        traffic.listeners += 1;
    }
    let listener = Rc::clone(connection);
    connection.spawn(async move {
        token.run_until_cancelled(listen(&listener)).await;
        listener.traffic.borrow_mut().listeners -= 1;
        listener.listener_stopped.notify_waiters();
    });
}

async fn listen(connection: &Rc<Connection>) {
    let mut point = ResumePoint::default();
    let mut back_off = BackOff::default();
    loop {
        match get_stream::get(connection, point.last_id.as_deref()).await {
            Ok(stream) => {
                if receive::pass_stream(connection, stream, &mut point).await {
                    back_off.worked();
                }
            }
            Err(Unavailable::ForNow) => {}
            Err(Unavailable::ForGood) => return,
        }
        if let Some(retry) = point.retry {
            back_off.asked(retry);
        }
        tokio::time::sleep_until(tokio::time::Instant::now() + back_off.next()).await;
    }
}
