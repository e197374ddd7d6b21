//! Streams and sinks.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_sink::Sink;

use crate::{ByteLimit, Limited};

impl<T: Stream, L: ByteLimit, F: Fn(&T::Item) -> u64> Stream for Limited<T, L, F> {
    type Item = T::Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T::Item>> {
        let this = self.project();
        ready!(this.read.poll(cx, this.limit));
        let item = ready!(this.inner.poll_next(cx));
        this.read.charge(this.limit, item.as_ref().map_or(0, this.cost));
        Poll::Ready(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.get_ref().size_hint()
    }
}

impl<I, T: Sink<I>, L: ByteLimit, F: Fn(&I) -> u64> Sink<I> for Limited<T, L, F> {
    type Error = T::Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        let this = self.project();
        ready!(this.write.poll(cx, this.limit));
        this.inner.poll_ready(cx)
    }

    fn start_send(self: Pin<&mut Self>, item: I) -> Result<(), T::Error> {
        let this = self.project();
        let cost = (this.cost)(&item);
        this.inner.start_send(item)?;
        this.write.charge(this.limit, cost);
        Ok(())
    }

    /// Does not wait: an item was charged when it was sent.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.project().inner.poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.project().inner.poll_close(cx)
    }
}
