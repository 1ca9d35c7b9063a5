from datetime import UTC, date, datetime, timedelta, timezone

from modis.granule_day import granule_day


def test_a_swath_over_midnight_is_of_the_day_on_which_it_begins() -> None:
    assert granule_day(datetime(2012, 4, 14, 23, 55, tzinfo=UTC)) == date(2012, 4, 14)


def test_the_day_is_that_of_utc() -> None:
    late = datetime(2012, 4, 14, 23, 55, tzinfo=timezone(timedelta(hours=-5)))
    assert granule_day(late) == date(2012, 4, 15)
