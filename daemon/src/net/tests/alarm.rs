//! What is reported when tasks end.

use tokio::sync::mpsc::unbounded_channel;

use super::super::{Alarm, NetReport};

#[tokio::test]
async fn a_task_that_panics_is_told_of_and_one_that_ends_is_not() {
    let (events, mut told) = unbounded_channel();
    let alarm = Alarm::new("a good task", &events);
    tokio::spawn(async move { drop(alarm) }).await.unwrap();
    let alarm = Alarm::new("a bad task", &events);
    let task = tokio::spawn(async move {
        let _alarm = alarm;
        tokio::task::yield_now().await;
        panic!("a mistake");
    });
    assert!(task.await.unwrap_err().is_panic());
    assert!(matches!(
        told.try_recv(),
        Ok(NetReport::Ended("a bad task"))
    ));
}
