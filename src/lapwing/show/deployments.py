"""Published ε of deployments, with their sources. They are cited, not computed.

Each figure was read in the named publication, or in a list that cites it: the OpenDP deployments registry
(data of July 2026), or Desfontaines's list of real-world uses of differential privacy. A figure says little
without its unit and its period, so that both are part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

ONCE, MONTHLY, DAILY, SIX_HOURLY = "once", "each month", "each day", "every 6 hours"
A_YEAR = {ONCE: 1, MONTHLY: 12, DAILY: 365, SIX_HOURLY: 4 * 365}  # periods of a year


@dataclass(frozen=True, slots=True)
class PublishedEpsilon:
    """The published ε of one deployment: of the unit that it protects, in one period.

    `least` is below `epsilon` where a range was published. `epsilon` is its largest value.
    """

    who: str
    release: str
    year: int
    epsilon: float
    delta: float
    unit: str
    period: str
    source: str
    least: float | None = None

    @property
    def in_a_year(self) -> float:
        """The sum of ε over a year, for somebody who takes part in each period: an upper limit."""
        return self.epsilon * A_YEAR[self.period]

    @property
    def shown(self) -> str | float:
        """The ε, or its range as a text."""
        return self.epsilon if self.least is None else f"{self.least:g} to {self.epsilon:g}"


PUBLISHED = (
    PublishedEpsilon(
        "Facebook", "URLs data set", 2020, 1.453, 1e-5,
        "all actions of one user, for 96.6 % of users", ONCE,
        "Messing et al., Facebook Privacy-Protected Full URLs Data Set (2020), doi:10.7910/DVN/TDOAPG",
    ),
    PublishedEpsilon(
        "US Census 2020", "redistricting, housing units", 2021, 2.47, 1e-10,
        "the record of one housing unit", ONCE,
        "Abowd et al., The 2020 Census DAS TopDown Algorithm (2022), arXiv:2204.08986",
    ),
    PublishedEpsilon(
        "Israel", "registry of live births 2014", 2024, 9.98, 0.0, "the record of one birth", ONCE,
        "Hod and Canetti, Differentially Private Release of Israel's National Registry of Live Births "
        "(2024), arXiv:2405.00267",
    ),
    PublishedEpsilon(
        "Google Gboard", "language models", 2024, 13.69, 1e-10, "the data of one device in one model", ONCE,
        "Google Research, Advances in private training for production on-device language models (2024)",
        least=0.994,
    ),
    PublishedEpsilon(
        "US Census 2020", "redistricting, persons", 2021, 17.14, 1e-10, "the record of one person", ONCE,
        "Abowd et al., The 2020 Census DAS TopDown Algorithm (2022), arXiv:2204.08986",
    ),
    PublishedEpsilon(
        "US Census 2020", "housing characteristics, persons", 2023, 26.34, 1e-10,
        "the record of one person, besides the redistricting data", ONCE,
        "U.S. Census Bureau, 2020 Census DHC technical documentation (2023), by the OpenDP registry",
    ),
    PublishedEpsilon(
        "LinkedIn", "audience engagement", 2020, 34.9, 7e-9,
        "all data of one member, in one analyst's answers of one month", MONTHLY,
        "Rogers et al., LinkedIn's Audience Engagements API (2020), arXiv:2002.05839",
    ),
    PublishedEpsilon(
        "Wikimedia", "page views by country 2017–2023", 2023, 1.0, 0.0, "30 page views on one day", DAILY,
        "Adeleye et al., Publishing Wikipedia usage data with strong privacy guarantees (2023), "
        "arXiv:2308.16298",
    ),
    PublishedEpsilon(
        "Google", "symptom searches", 2020, 1.68, 0.0, "the searches of one user on one day", DAILY,
        "Bavadekar et al., COVID-19 Search Trends symptoms dataset (2020), arXiv:2009.01265",
    ),
    PublishedEpsilon(
        "Google", "community mobility", 2020, 2.64, 0.0, "the data of one user on one day", DAILY,
        "Aktay et al., COVID-19 Community Mobility Reports (2020), arXiv:2004.04145",
    ),
    PublishedEpsilon(
        "Apple", "emoji", 2017, 4.0, 0.0, "one report; one is sent each day (local model)", DAILY,
        "Apple, Differential Privacy Overview (2017), and Learning with Privacy at Scale (2017)",
    ),
    PublishedEpsilon(
        "Apple", "four features of macOS 10.12", 2017, 16.0, 0.0,
        "all reports of one user on one day, at most (local model, found by a study)", DAILY,
        "Tang et al., Privacy Loss in Apple's Implementation of Differential Privacy on MacOS 10.12 "
        "(2017), arXiv:1709.02753",
    ),
    PublishedEpsilon(
        "Microsoft", "app usage in Windows", 2017, 1.672, 0.0,
        "one round of reports of one user (local model; kept answers can make a year cost less)",
        SIX_HOURLY,
        "Ding, Kulkarni and Yekhanin, Collecting Telemetry Data Privately (2017)",
    ),
)  # fmt: skip
