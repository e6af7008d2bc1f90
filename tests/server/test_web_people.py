"""Stewards manage the people of their own data sets, and get no power over other data by it."""

from __future__ import annotations

import httpx
import pytest

from support.cases import each
from support.server_people import GOOD, Site


@pytest.fixture
def staff(site: Site) -> Site:
    """Two data sets with a steward each, an officer, analysts, and somebody who manages all."""
    site.person("stella", visits="steward")
    site.person("tom", town="steward")
    site.person("olga", visits="officer")
    site.person("ann", visits="analyst")
    site.person("both", visits="analyst", town="analyst")
    site.person("root", everywhere="steward")
    return site


def names(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [one["name"] for one in reply.json()["people"]]


class TestSeeing:
    def test_stewards_and_officers_see_the_people_of_their_data(self, staff: Site) -> None:
        assert names(staff.signed_in("stella").get("/v1/people")) == ["ann", "both", "olga", "stella"]
        assert names(staff.signed_in("tom").get("/v1/people")) == ["both", "tom"]
        assert names(staff.signed_in("olga").get("/v1/people")) == ["ann", "both", "olga", "stella"]
        assert len(names(staff.signed_in("root").get("/v1/people"))) == 6
        assert staff.signed_in("ann").get("/v1/people").status_code == 403
        assert staff.browser().get("/v1/people").status_code == 401

    def test_roles_for_other_data_are_not_shown(self, staff: Site) -> None:
        for name, shown in (("stella", ["visits"]), ("tom", ["town"]), ("root", ["town", "visits"])):
            people = staff.signed_in(name).get("/v1/people").json()["people"]
            [both] = [one for one in people if one["name"] == "both"]
            assert list(both["roles"]) == shown

    def test_identities_are_shown_to_those_who_manage_them(self, staff: Site) -> None:
        staff.people.accounts.bind("ann", "https://id.example", "canary")
        assert "canary" in staff.signed_in("stella").get("/v1/people").text
        assert "canary" not in staff.signed_in("olga").get("/v1/people").text

    def test_an_account_elsewhere_is_the_404_of_one_that_never_was(self, staff: Site) -> None:
        browser = staff.signed_in("stella")
        for method, path in (
            ("POST", "/v1/people/{}/disable"),
            ("POST", "/v1/people/{}/password-link"),
            ("GET", "/v1/people/{}/tokens"),
        ):
            replies = [browser.request(method, path.format(name)) for name in ("tom", "root", "nobody")]
            assert {(one.status_code, one.content) for one in replies} == {(404, replies[0].content)}


class TestLinksMadeBefore:
    """A steward cannot keep a way into an account that gets a role for other data."""

    @each(("who",), [("tom",), ("root",)])
    def test_a_link_made_before_is_no_way_to_data_given_later(self, staff: Site, who: str) -> None:
        name = f"analyst-of-{who}"
        staff.person(name, visits="analyst")
        stella = staff.signed_in("stella")
        link = stella.post(f"/v1/people/{name}/password-link").json()["password_link"]
        given = staff.signed_in(who).put(
            f"/v1/people/{name}/roles", json={"data": "town", "roles": ["analyst"]}
        )
        assert given.status_code == 200
        body = {"link": link, "password": "of somebody else"}
        assert staff.browser().post("/v1/password", json=body).status_code == 401
        assert staff.signed_in(name).get("/v1/me").status_code == 200

    def test_nor_is_that_of_an_account_without_roles(self, staff: Site) -> None:
        body = {"name": "new", "data": "visits", "roles": []}
        link = staff.signed_in("stella").post("/v1/people", json=body).json()["password_link"]
        staff.signed_in("tom").put("/v1/people/new/roles", json={"data": "town", "roles": ["analyst"]})
        body = {"link": link, "password": GOOD}
        assert staff.browser().post("/v1/password", json=body).status_code == 401

    def test_a_link_of_a_command_outlives_the_first_role(self, staff: Site) -> None:
        staff.people.accounts.make("new")
        link = staff.people.links.make_password("new")
        staff.signed_in("stella").put("/v1/people/new/roles", json={"data": "visits", "roles": ["analyst"]})
        body = {"link": link, "password": GOOD}
        assert staff.browser().post("/v1/password", json=body).status_code == 204


class TestMaking:
    def test_a_steward_makes_an_account_whose_owner_sets_the_password(self, staff: Site) -> None:
        body = {"name": "new", "shown_name": "New One", "data": "visits", "roles": ["analyst"]}
        reply = staff.signed_in("stella").post("/v1/people", json=body)
        assert reply.status_code == 201
        found = reply.json()["person"]
        assert (found["roles"], found["has_password"]) == ({"visits": ["analyst"]}, False)
        link = {"link": reply.json()["password_link"], "password": GOOD}
        browser = staff.browser()
        assert browser.post("/v1/password", json=link).status_code == 204
        assert browser.get("/v1/me").json()["roles"] == {"visits": ["analyst"]}

    @each(
        ("who", "data", "status"),
        [
            ("stella", "visits", 201),
            ("stella", "town", 404),
            ("stella", "nothing", 404),
            ("stella", "*", 403),
            ("olga", "visits", 403),
            ("ann", "visits", 403),
            ("root", "town", 201),
            ("root", "*", 201),
        ],
    )
    def test_only_for_data_that_one_is_steward_of(
        self, staff: Site, who: str, data: str, status: int
    ) -> None:
        name = f"new-{who}-{data.replace('*', 'all')}"
        body = {"name": name, "data": data, "roles": ["analyst"]}
        assert staff.signed_in(who).post("/v1/people", json=body).status_code == status
        assert (staff.people.accounts.find(name) is not None) == (status == 201)

    @each(
        "body",
        [
            {"name": "ann", "data": "visits", "roles": []},
            {"name": "ANN", "data": "visits", "roles": []},
            {"name": "*", "data": "visits", "roles": []},
            {"name": "new", "data": "visits", "roles": ["king"]},
            {"name": "new", "data": "visits", "roles": "analyst"},
            {"name": "new", "roles": []},
            {"name": "new", "data": "visits", "roles": [], "password": GOOD},
        ],
    )
    def test_bad_wishes_are_refused(self, staff: Site, body: object) -> None:
        assert staff.signed_in("stella").post("/v1/people", json=body).status_code == 422
        assert staff.people.accounts.find("new") is None


class TestRoles:
    def test_a_steward_changes_them_for_own_data_alone(self, staff: Site) -> None:
        browser = staff.signed_in("stella")
        body = {"data": "visits", "roles": ["officer"]}
        assert browser.put("/v1/people/both/roles", json=body).status_code == 200
        assert staff.people.accounts.known("both").roles["visits"] == {"officer"}
        assert staff.people.accounts.known("both").roles["town"] == {"analyst"}
        for data, status in (("town", 404), ("*", 403), ("nothing", 404)):
            body = {"data": data, "roles": ["steward"]}
            assert browser.put("/v1/people/stella/roles", json=body).status_code == status
        assert staff.people.accounts.known("stella").roles == {"visits": {"steward"}}
        assert (
            browser.put("/v1/people/nobody/roles", json={"data": "visits", "roles": []}).status_code == 404
        )

    def test_they_hold_from_the_next_request_on(self, staff: Site) -> None:
        ann = staff.signed_in("ann")
        body: dict[str, object] = {"data": "visits", "roles": []}
        staff.signed_in("stella").put("/v1/people/ann/roles", json=body)
        assert ann.get("/v1/me").json()["roles"] == {}


class TestManaging:
    @each(
        ("who", "whom", "status"),
        [
            ("stella", "ann", 204),
            ("stella", "olga", 204),
            ("stella", "both", 403),  # who also has a role elsewhere
            ("stella", "stella", 403),
            ("stella", "tom", 404),
            ("stella", "root", 404),
            ("olga", "ann", 403),
            ("ann", "both", 404),
            ("tom", "both", 403),
            ("root", "tom", 204),
        ],
    )
    def test_an_account_is_ended_by_a_steward_of_all_its_data(
        self, site: Site, who: str, whom: str, status: int
    ) -> None:
        if site.people.accounts.find("stella") is None:
            for name, roles in (
                ("stella", {"visits": "steward"}), ("tom", {"town": "steward"}),
                ("olga", {"visits": "officer"}), ("ann", {"visits": "analyst"}),
                ("both", {"visits": "analyst", "town": "analyst"}), ("root", {"everywhere": "steward"}),
            ):  # fmt: skip
                site.person(name, **roles)
        browser = site.browser()
        if site.people.accounts.known(who).is_disabled or site.people.accounts.known(whom).is_disabled:
            with site.state.transaction() as run:
                run("UPDATE accounts SET is_disabled = 0")
        browser.cookies.set(site.cookie, site.people.sessions.begin(who))
        for path in ("password-link", "disable"):
            wanted = 201 if status == 204 and path == "password-link" else status
            assert browser.post(f"/v1/people/{whom}/{path}").status_code == wanted
        assert site.people.accounts.known(whom).is_disabled == (status == 204)

    def test_an_account_without_roles_is_managed_by_whoever_made_it(self, staff: Site) -> None:
        stella = staff.signed_in("stella")
        for name in ("one", "two"):
            stella.post("/v1/people", json={"name": name, "data": "visits", "roles": []})
        assert staff.signed_in("tom").post("/v1/people/one/disable").status_code == 404
        assert stella.post("/v1/people/one/disable").status_code == 204
        assert stella.post("/v1/people/one/password-link").status_code == 404

    def test_an_identity_is_bound_and_unbound(self, staff: Site) -> None:
        stella, body = staff.signed_in("stella"), {"issuer": "https://id.example", "subject": "1"}
        assert stella.post("/v1/people/ann/identities", json=body).status_code == 200
        assert staff.people.accounts.with_identity("https://id.example", "1") == "ann"
        assert stella.post("/v1/people/olga/identities", json=body).status_code == 422
        assert stella.post("/v1/people/both/identities", json=body).status_code == 403
        assert stella.request("DELETE", "/v1/people/ann/identities", json=body).status_code == 200
        assert staff.people.accounts.with_identity("https://id.example", "1") is None

    def test_a_steward_sees_and_ends_tokens_of_own_data(self, staff: Site) -> None:
        made = {}
        for name, data in (("ann", None), ("both", ["visits"]), ("both", ["town"]), ("both", None)):
            body = {"name": "a", "days": 1, "data": data}
            reply = staff.signed_in(name).post("/v1/tokens", json=body)
            made[name, str(data)] = reply.json()["token"]["id"]
        stella = staff.signed_in("stella")
        seen = [one["id"] for one in stella.get("/v1/people/both/tokens").json()["tokens"]]
        assert seen == [made["both", "['visits']"]]
        assert stella.delete(f"/v1/tokens/{made['both', 'None']}").status_code == 404
        assert stella.delete(f"/v1/tokens/{made['ann', 'None']}").status_code == 204
        assert staff.signed_in("ann").get("/v1/people/both/tokens").status_code == 404
