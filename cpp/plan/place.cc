// place: where each operand's bytes are, by input slot and then by result.
#include "plan/passes.h"

namespace accel::planner {

static Place place_of(const PlanData& p, const Operand& o) {
  Place place;
  const int64_t size = size_of(o.dtype);
  place.offset = o.hull.begin * size;
  place.bytes = (o.hull.end - o.hull.begin) * size;
  if (o.value < 0) {
    place.kind = Place::port;
    place.index = slot_of(p, o.port, o.begin, o.count);
    return place;
  }
  const Value& value = p.values[size_t(o.value)];
  if (value.output_port >= 0) {
    place.kind = Place::port;
    place.index = slot_of(p, value.output_port, 0, value.type.shape.elements());
  } else {
    place.kind = Place::arena;
    place.offset += value.arena_offset;
  }
  return place;
}

// rope by base reads its frequencies from a table that the host fills; their slot is absent in the
// call.
static void place_table(const PlanData& p, Step& step) {
  const int table = table_of(p, step.call);
  if (table < 0) return;
  const std::vector<Slot> slots = slots_of(*step.def, step.call.in.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].name != "frequencies") continue;
    Place& place = step.places[i];
    place.kind = Place::table;
    place.index = table;
    place.offset = 0;
    place.bytes = p.tables[size_t(table)].rotary_dim / 2 * size_of(DType::F32);
  }
}

void place(PlanData& p) {
  const ValueIndex index(p);
  for (Step& step : p.steps) {
    step.places.clear();
    for (const Operand& o : operands_of(p, index, step))
      step.places.push_back(o.present ? place_of(p, o) : Place{});
    place_table(p, step);
  }
}

static void verify_in_arena(const PlanData& p, int s, const Operand& o, const Place& place) {
  if (o.value < 0 || p.values[size_t(o.value)].output_port >= 0)
    fail("place", p, s, "an operand of a port is in the arena");
  const Value& v = p.values[size_t(o.value)];
  const int64_t begin = v.arena_offset + o.hull.begin * size_of(o.dtype);
  if (place.offset != begin || place.offset + place.bytes > v.arena_offset + v.type.bytes())
    fail("place", p, s, "an operand is not where its value is");
  if (place.offset + place.bytes > p.memory.transient_bytes)
    fail("place", p, s, "an operand leaves the arena");
}

static void verify_in_port(const PlanData& p, int s, const Operand& o, const Place& place) {
  if (place.index < 0 || place.index >= int(p.slots.size()))
    fail("place", p, s, "an operand has no slot");
  const PortSlot& slot = p.slots[size_t(place.index)];
  const bool value = o.value >= 0;
  const int port = value ? p.values[size_t(o.value)].output_port : o.port;
  const int64_t count = value ? p.values[size_t(o.value)].type.shape.elements() : o.count;
  if (slot.port != port || slot.begin != (value ? 0 : o.begin) || slot.count != count)
    fail("place", p, s, "an operand is in another slot");
  const int64_t size = size_of(o.dtype);
  if (place.offset != o.hull.begin * size || place.offset + place.bytes > slot.count * size)
    fail("place", p, s, "an operand is not where its slot has it");
}

static void verify_one(const PlanData& p, int s, const Operand& o, const Place& place) {
  if (!o.present) {
    const bool table = place.kind == Place::table && place.index < int(p.tables.size());
    if (place.kind != Place::none && !table) fail("place", p, s, "an absent operand has a place");
    return;
  }
  if (place.bytes != (o.hull.end - o.hull.begin) * size_of(o.dtype))
    fail("place", p, s, "an operand has another size than its view");
  if (place.kind == Place::arena) verify_in_arena(p, s, o, place);
  else if (place.kind == Place::port) verify_in_port(p, s, o, place);
  else fail("place", p, s, "an operand has no place");
}

// No operand may be overwritten in place: what a step writes is apart from everything else it has.
static void verify_apart(const PlanData& p, int s, const Touches& touches) {
  for (size_t i = 0; i < touches.size(); ++i)
    for (size_t j = 0; j < touches.size(); ++j)
      if (i != j && touches[i].write && conflict(touches[i], touches[j]))
        fail("place", p, s, "an operand shares bytes with what the step writes");
}

void verify_place(const PlanData& p) {
  const ValueIndex index(p);
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const Step& step = p.steps[size_t(s)];
    const std::vector<Operand> operands = operands_of(p, index, step);
    if (operands.size() != step.places.size()) fail("place", p, s, "an operand has no place");
    for (size_t i = 0; i < operands.size(); ++i) verify_one(p, s, operands[i], step.places[i]);
    bool tabled = false;
    for (const Place& place : step.places) tabled |= place.kind == Place::table;
    if (tabled != (table_of(p, step.call) >= 0)) fail("place", p, s, "rope has lost its table");
  }
  const std::vector<Touches> touches = memory_touches(p);
  for (int s = 0; s < int(p.steps.size()); ++s) verify_apart(p, s, touches[size_t(s)]);
}

}  // namespace accel::planner
