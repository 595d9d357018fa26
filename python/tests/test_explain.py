"""EXPLAIN as an object: text, JSON and a picture in which no text of a plan is markup."""

import xml.dom.minidom

import cleave
import pytest
from cleave import Explain


def test_a_plan_of_both_sides_is_drawn(db):
    db.execute("CREATE TABLE t (id int, kind int)")
    db.execute("INSERT INTO t SELECT v, v % 5 FROM generate_series(1, 50000) AS s(v)")
    query = "SELECT kind, count(*) FROM t WHERE id > ? GROUP BY kind"
    db.execute("SET split = h0")
    split = db.explain(query, [5])
    assert split.devices == ["embedded"] and "embedded" in split.svg and "count" in str(split)
    picture = xml.dom.minidom.parseString(split.svg).documentElement
    boxes = [rect for rect in picture.getElementsByTagName("rect") if rect.getAttribute("rx")]
    assert len(boxes) == sum(len(root.walk()) for root in split.roots)
    assert split._repr_html_().startswith("<div") and split._repr_svg_() == split.svg
    db.execute("SET split = host")
    alone = db.explain(query, [5])
    assert alone.devices == [] and "link" not in alone.svg
    measured = db.explain(query, [5], analyze=True)
    assert any(one.rows == 5 for one in measured.roots[0].walk())
    with pytest.raises(cleave.ProgrammingError):
        db.explain("SELECT nothing")
    with pytest.raises(cleave.NotSupportedError, match="more than one"):
        db.explain("SELECT 1; DROP TABLE film")


def test_texts_of_a_plan_are_escaped():
    nodes = '[{"depth":0,"operator":"<b>","detail":"\\u0001<script>","runs_on":"host"},' \
            '{"depth":1,"operator":"Scan","detail":"\\"&","runs_on":"</svg>"}]'
    plan = Explain("", f'{{"plan":{nodes},"candidates":[{{"split":"<i>"}}]}}')
    xml.dom.minidom.parseString(plan.svg)
    for markup in ["<b>", "<script", "<i>", "\x01"]:
        assert markup not in plan._repr_html_()


def test_plans_in_the_form_of_postgresql_are_read():
    plan = Explain("", '[{"Plan":{"Node Type":"Aggregate","Plan Rows":1,"Side":"host","Plans":['
                       '{"Node Type":"Seq Scan","Relation Name":"t","Actual Rows":3},'
                       '{"Node Type":"Seq Scan","Description":"Scan of u","Side":"device","Device":"nas"}]}}]')
    [root] = plan.roots
    assert (root.name, root.expected, root.inputs[0].rows) == ("Aggregate", 1, 3)
    assert plan.devices == ["nas"] and root.inputs[1].detail == "Scan of u"
    assert "Seq Scan: Relation Name: t" in str(plan)
    xml.dom.minidom.parseString(plan.svg)
