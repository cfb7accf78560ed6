"""Context of REST handlers: the console, the actor, the cluster of the path, the part of a list."""

from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel, ConfigDict

from orbitmq.dashboard import listing
from orbitmq.dashboard.auth.roles import Actor
from orbitmq.dashboard.clusters import ManagedCluster
from orbitmq.dashboard.console import Console

T = TypeVar("T")


class View(BaseModel):
    """A value of ``orbitmq.admin`` as JSON: its attributes and properties of these names."""

    model_config = ConfigDict(from_attributes=True)


class PageView(View, Generic[T]):
    """A part of a list. ``total`` counts all that match the search."""

    rows: list[T]
    total: int
    page: int
    size: int


def _console(request: Request) -> Console:
    console: Console = request.app.state.console
    return console


def _actor(request: Request) -> Actor:
    actor: Actor = request.state.actor
    return actor


def _cluster(request: Request, cluster: str) -> ManagedCluster:
    return _console(request).clusters.get(cluster)


def _listing(
    page: Annotated[int, Query(ge=1)] = 1,
    size: Annotated[int, Query(ge=1, le=listing.MAX_PAGE_SIZE)] = 50,
    search: Annotated[str, Query(max_length=255)] = "",
    sort: Annotated[str, Query(max_length=64)] = "",
    descending: bool = False,
) -> listing.Query:
    return listing.Query(page=page, size=size, search=search, sort=sort, descending=descending)


ConsoleDep = Annotated[Console, Depends(_console)]
ActorDep = Annotated[Actor, Depends(_actor)]
ClusterDep = Annotated[ManagedCluster, Depends(_cluster)]
ListingDep = Annotated[listing.Query, Depends(_listing)]
DryRun = Annotated[bool, Query(description="Return the changes without making them.")]
