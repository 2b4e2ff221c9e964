//! What carries a communicator's messages: the memory of one node, or that of several and the network between them.

use shm_core::{Call, LocalComm, Owned, OwnedCall, Ticket};

use crate::Element;
use crate::context::Inner;
use crate::error::Result;
use crate::nodes::Nodes;

/// A communicator's engine.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one a communicator, behind a reference
pub(crate) enum Carrier {
    /// All ranks are on this node.
    Node(LocalComm),
    /// They are on several.
    Nodes(Nodes),
}

impl Carrier {
    pub(crate) fn rank(&self) -> usize {
        match self {
            Self::Node(local) => local.rank(),
            Self::Nodes(nodes) => nodes.flat().rank(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Node(local) => local.size(),
            Self::Nodes(nodes) => nodes.flat().size(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Node(local) => local.id(),
            Self::Nodes(nodes) => nodes.flat().id(),
        }
    }

    /// The lowest rank in the world: it tells this group from others with the same id, which nodes may have made for
    /// themselves.
    pub(crate) fn first(&self, context: &Inner) -> usize {
        let first = match self {
            Self::Node(local) => local.world().iter().map(|&on_node| context.world_rank(on_node)).min(),
            Self::Nodes(nodes) => nodes.flat().world().iter().copied().min(),
        };
        first.unwrap_or(0)
    }

    /// Carries out `call` and waits for it.
    #[inline(always)] // a call of its own would save and restore a dozen registers
    pub(crate) fn run(&mut self, call: &Call<'_>, context: &Inner) -> Result<()> {
        match self {
            Self::Node(local) => context.of_node(local.run(call, || context.idle_on_node())),
            Self::Nodes(nodes) => nodes.run(call, context),
        }
    }

    /// Begins `call`.
    pub(crate) fn start(&mut self, call: Call<'static>, context: &Inner) -> Result<Ticket> {
        match self {
            Self::Node(local) => context.of_node(local.start(call)),
            Self::Nodes(nodes) => nodes.start(call, context),
        }
    }

    /// Begins an operation on a vector.
    pub(crate) fn start_owned<T: Element>(
        &mut self,
        what: OwnedCall,
        buffer: Vec<T>,
        context: &Inner,
    ) -> Result<Owned<T>> {
        match self {
            Self::Node(local) => context.of_node(local.start_owned(what, buffer)),
            Self::Nodes(nodes) => nodes.start_owned(what, buffer, context),
        }
    }

    /// The vector of an operation that has completed.
    pub(crate) fn take<T>(&mut self, owned: Owned<T>) -> std::result::Result<Vec<T>, Owned<T>> {
        match self {
            Self::Node(local) => local.take(owned),
            Self::Nodes(nodes) => nodes.take(owned),
        }
    }

    /// Goes on with what was begun.
    pub(crate) fn progress(&mut self, context: &Inner) -> Result<()> {
        match self {
            Self::Node(local) => context.of_node(local.progress()),
            Self::Nodes(nodes) => nodes.progress(context),
        }
    }

    /// True if operations were begun and have not completed.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Node(local) => local.is_busy(),
            Self::Nodes(nodes) => nodes.is_busy(),
        }
    }

    /// True if the operation of `ticket` is known to have completed.
    pub(crate) fn has_completed(&self, ticket: Ticket) -> bool {
        match self {
            Self::Node(local) => local.has_completed(ticket),
            Self::Nodes(nodes) => nodes.has_completed(ticket),
        }
    }

    /// Goes on, and tells whether the operation of `ticket` has completed.
    pub(crate) fn test(&mut self, ticket: Ticket, context: &Inner) -> Result<bool> {
        match self {
            Self::Node(local) => {
                context.keep_network()?;
                context.of_node(local.test(ticket))
            }
            Self::Nodes(nodes) => nodes.test(ticket, context),
        }
    }

    /// Waits for the operation of `ticket`.
    pub(crate) fn wait(&mut self, ticket: Ticket, context: &Inner) -> Result<()> {
        match self {
            Self::Node(local) => context.of_node(local.wait(ticket, || context.idle_on_node())),
            Self::Nodes(nodes) => nodes.wait(ticket, context),
        }
    }

    /// Waits for all operations that were begun.
    pub(crate) fn wait_all(&mut self, context: &Inner) -> Result<()> {
        match self {
            Self::Node(local) => context.of_node(local.wait_all(|| context.idle_on_node())),
            Self::Nodes(nodes) => nodes.wait_all(context),
        }
    }

    /// Several lines on what this is and how it works.
    pub(crate) fn describe(&self, context: &Inner) -> String {
        match self {
            Self::Node(local) => local.describe(),
            Self::Nodes(nodes) => nodes.describe(context) + &context.describe_nodes(),
        }
    }

    /// The module and form, or algorithm, that `call` would take.
    pub(crate) fn choice(&self, call: &Call<'_>, context: &Inner) -> String {
        match self {
            Self::Node(local) => local.choice(call).to_owned(),
            Self::Nodes(nodes) => nodes.choice(call, context),
        }
    }

    /// The network's module that `call` would take, if it goes over several nodes.
    pub(crate) fn module(&self, call: &Call<'_>, context: &Inner) -> Option<&'static str> {
        match self {
            Self::Node(_) => None,
            Self::Nodes(nodes) => Some(nodes.module(call, context)),
        }
    }

    /// The form and algorithm for a call that is about to be made.
    pub(crate) fn next_choice(&mut self, call: &Call<'_>, context: &Inner) -> String {
        match self {
            Self::Node(local) => local.choice(call).to_owned(),
            Self::Nodes(nodes) => nodes.next_choice(call, context),
        }
    }
}
