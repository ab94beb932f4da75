// Every kind of file, broken one way at a time: one line that names file, line and key, and what was expected.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>

#include "moe/base/check.h"
#include "moe/prices/profile.h"
#include "moe/record/reader.h"
#include "moe/shape/grid.h"
#include "moe/shape/layer_file.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"

namespace moe {
namespace {

/// A file that is right; each row replaces one part of it, once.
struct Kind {
  std::string_view name;
  std::string_view good;
  std::function<void(const std::string&)> read;
};

struct Broken {
  std::string_view part, instead;
  std::string_view says;  // what follows "FILE:"
};

void expect_each_refused(const Kind& kind, const std::vector<Broken>& rows) {
  const Scratch scratch;
  ASSERT_NO_THROW(kind.read(scratch.write("good", kind.good)));
  for (const Broken& row : rows) {
    std::string text(kind.good);
    const size_t at = text.find(row.part);
    ASSERT_NE(at, std::string::npos) << row.part;
    text.replace(at, row.part.size(), row.instead);
    const std::string path = scratch.write("broken", text);
    const auto message = error_of<BadInput>([&] { kind.read(path); });
    const std::string expected = path + ":" + std::string(row.says);
    EXPECT_EQ(message.substr(0, expected.size()), expected) << kind.name << ": " << row.instead;
    EXPECT_NE(message.find("expected"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

constexpr std::string_view kProfile = R"(schema = 1
name = "p"
source = "s"
[topology]
nodes = 2
ranks_per_node = 4
[[comm]]
op = "alltoall"
network = "inter"
ranks = 2
alpha_s = 1e-4
beta_s_per_byte = 1e-10
algorithm = "2dh"
r_squared = 0.9
range_bytes = [1, 2]
points = [[1, 1e-4], [2, 2e-4]]
[[comm]]
op = "allgather"
network = "intra"
ranks = 4
alpha_s = 0
beta_s_per_byte = 1e-10
[[compute]]
op = "expert"
ffn = "gpt"
dtype = "float32"
alpha_s = 0
beta_s_per_flop = 1e-14
[[compute]]
op = "copy"
alpha_s = 0
beta_s_per_byte = 1e-12
[[module]]
name = "attention"
phase = "forward"
seq = 256
alpha_s = 1e-3
beta_s_per_flop = 1e-14
[overhead]
task_s = 1e-6
[contention]
intra_by_inter = 1.5
)";

TEST(MalformedFiles, Profiles) {
  const std::vector<Broken> rows{
      {"schema = 1\n", "", "1: schema: found no such key, expected the whole number 1"},
      {"schema = 1", "schema = 2", "1: schema: found 2, expected the whole number 1"},
      {"name = \"p\"", "name = \"a/b\"", "2: name: found 'a/b', expected one line of text without /"},
      {"name = \"p\"", "name = 5", "2: name: found 5, expected a text"},
      {"name = \"p\"", "name = \"p", "2: found bad syntax ("},
      {"name = \"p\"", "schema = 1", "2: found bad syntax ("},
      {"source = \"s\"", "sauce = \"s\"", "3: sauce: found unknown key 'sauce', expected one of: schema, name"},
      {"source = \"s\"\n", "", "1: source: found no such key, expected a text"},
      {"[topology]", "[topologie]", "4: topologie: found unknown key 'topologie', expected one of: "},
      {"nodes = 2", "nodes = 0", "5: topology.nodes: found 0, expected a whole number >= 1"},
      {"nodes = 2", "nodes = 2.5", "5: topology.nodes: found 2.5, expected a whole number"},
      {"nodes = 2", "nodes = \"2\"", "5: topology.nodes: found '2', expected a whole number"},
      {"ranks_per_node = 4\n", "", "4: topology.ranks_per_node: found no such key, expected a whole number"},
      {"ranks_per_node = 4", "ranks_per_node = 1000000000", "6: topology.ranks_per_node: found 1000000000, expected"},
      {"alltoall", "all2all", "8: comm.op: found 'all2all', expected one of: alltoall, allgather"},
      {"\"inter\"", "\"wifi\"", "9: comm.network: found 'wifi', expected one of: inter, intra"},
      {"ranks = 2", "ranks = 1", "10: comm.ranks: found 1, expected a whole number >= 2"},
      {"ranks = 2", "ranks = 9", "10: comm.ranks: found 9, expected a whole number >= 2 and <= 8"},
      {"ranks = 2\n", "", "7: comm.ranks: found no such key, expected a whole number >= 2"},
      {"ranks = 2\n", "ranks = 2\nranks_per_node = 2\n",
       "11: comm.ranks_per_node: found 2, expected at most 1, half of ranks = 2"},
      {"ranks = 2\n", "ranks = 2\nranks_per_node = 5\n",
       "11: comm.ranks_per_node: found 5, expected a whole number >= 1 and <= 4"},
      {"ranks = 4\n", "ranks = 4\nranks_per_node = 1\n",
       "21: comm.ranks_per_node: found 1, expected none but of a collective with network = 'inter'"},
      {"alpha_s = 1e-4", "alpha_s = -1e-4", "11: comm.alpha_s: found -0.0001, expected a number >= 0"},
      {"alpha_s = 1e-4", "alpha_s = 1e308",
       "11: comm.alpha_s: found 1e+308, expected a number >= 0 and <= 1000000000000"},
      {"intra_by_inter = 1.5", "intra_by_inter = 1e300",
       "42: contention.intra_by_inter: found 1e+300, expected a number >= 1"},
      {"alpha_s = 1e-4", "alpha_s = nan", "11: comm.alpha_s: found nan, expected a number >= 0"},
      {"alpha_s = 1e-4", "alpha_s = true", "11: comm.alpha_s: found true, expected a number >= 0"},
      {"beta_s_per_byte = 1e-10", "beta_s_per_byte = 0", "12: comm.beta_s_per_byte: found 0, expected a number > 0"},
      {"beta_s_per_byte = 1e-10", "beta_s_per_byte = inf", "12: comm.beta_s_per_byte: found inf, expected"},
      {"beta_s_per_byte = 1e-10", "beta_s_per_bite = 1", "12: comm.beta_s_per_bite: found unknown key"},
      {"\"2dh\"", "\"3dh\"", "13: comm.algorithm: found '3dh', expected one of: direct, 1dh, 2dh"},
      {"r_squared = 0.9", "r_squared = 1.1", "14: comm.r_squared: found 1.1, expected a number <= 1"},
      {"[1, 2]", "[2, 1]", "15: comm.range_bytes: found 1, expected a number > 2"},
      {"[1, 2]", "[1]", "15: comm.range_bytes: found a list of 1, expected [least, most]"},
      {"[[1, 1e-4], [2, 2e-4]]", "[[2, 1e-4], [1, 2e-4]]", "16: comm.points: found 1, expected a number > 2"},
      {"[[1, 1e-4], [2, 2e-4]]", "[[1, 1e-4]]", "16: comm.points: found a list of 1, expected at least two points"},
      {"[[1, 1e-4], [2, 2e-4]]", "[[1, 0], [2, 1]]", "16: comm.points: found 0, expected a number > 0"},
      {"[[1, 1e-4], [2, 2e-4]]", "[1, 2]", "16: comm.points: found 1, expected [size, seconds] each"},
      {"ranks = 4\n", "ranks = 5\n", "20: comm.ranks: found 5, expected a whole number >= 2 and <= 4"},
      {"op = \"allgather\"\nnetwork = \"intra\"\nranks = 4\n",
       "op = \"alltoall\"\nnetwork = \"inter\"\nranks = 2\nalgorithm = \"2dh\"\n",
       "18: comm.op: found a second row of the same kind, expected each row once"},
      {"op = \"expert\"", "op = \"gemm\"", "25: compute.ffn: found 'gpt', expected none beside op = 'gemm'"},
      {"ffn = \"gpt\"\n", "", "23: compute.ffn: found no such key, expected a text"},
      {"\"gpt\"", "\"moe\"", "25: compute.ffn: unknown 'moe', expected one of: gpt, mixtral"},
      {"\"float32\"", "\"half\"", "26: compute.dtype: unknown 'half', expected one of: float32"},
      {"beta_s_per_flop = 1e-14", "beta_s_per_byte = 1",
       "28: compute.beta_s_per_byte: found 1, expected beta_s_per_flop"},
      {"beta_s_per_byte = 1e-12\n", "", "29: compute.beta_s_per_byte: found no such key, expected a number > 0"},
      {"\"forward\"", "\"sideways\"", "35: module.phase: found 'sideways', expected one of: forward, backward"},
      {"seq = 256", "seq = 0", "36: module.seq: found 0, expected a whole number >= 1"},
      {"\"attention\"", "\"order:tutel\"", "38: module.beta_s_per_flop: found 1e-14, expected beta_s_per_byte for"},
      {"alpha_s = 1e-3\nbeta_s_per_flop = 1e-14", "alpha_s = 1e-3\nbeta_s_per_byte = 1e-14",
       "38: module.beta_s_per_byte: found 1e-14, expected beta_s_per_flop for"},
      {"alpha_s = 1e-3\nbeta_s_per_flop = 1e-14\n", "alpha_s = 1e-3\n",
       "33: module.beta_s_per_flop: found no such key, expected a number >= 0"},
      {"seq = 256", "range_bytes = [1, 2]", "36: module.range_bytes: found a list of 2, expected range_flops for"},
      {"seq = 256", "slope = 1", "36: module.slope: found unknown key 'slope'"},
      {"task_s = 1e-6", "task_s = -1", "40: overhead.task_s: found -1, expected a number >= 0"},
      {"intra_by_inter = 1.5", "intra_by_inter = 0.5",
       "42: contention.intra_by_inter: found 0.5, expected a number >= 1"},
      {"intra_by_inter = 1.5", "copy_by_intra = 0.5",
       "42: contention.copy_by_intra: found 0.5, expected a number >= 1"},
      {"intra_by_inter = 1.5", "intra_by_copy_stall_s = -1",
       "42: contention.intra_by_copy_stall_s: found -1, expected a number >= 0"},
      {"intra_by_inter = 1.5", "copy_by_copy = 2", "42: contention.copy_by_copy: found unknown key 'copy_by_copy'"},
      {"[overhead]", "[[overhead]]", "39: overhead: found a list of 1, expected a table"},
      {"[[module]]", "[module]\n[[modules]]", "34: modules: found unknown key 'modules'"},
      {"[[module]]", "[module]", "33: module: found a table, expected [[module]] tables"},
      {"[topology]", "2020-01-01 = 1\n[topology]", "4: 2020-01-01: found unknown key"},
  };
  expect_each_refused({"profile", kProfile, [](const std::string& path) { read_profile(path); }}, rows);
}

constexpr std::string_view kGrid = R"(schema = 1
name = "g"
source = "s"
cluster = "testbed-b"
capacity_rounding = "exact"
[layers]
batch = [1, 2]
heads = 8
seq = [256]
model_dim = [1024, 2048]
hidden_scale = [2, 3]
capacity_factor = [1.2, "*"]
ffn = ["simple", "mixtral"]
top_k = 1
experts = "nodes"
)";

TEST(MalformedFiles, Grids) {
  std::string many = "[1";
  for (int i = 2; i <= 1000; ++i) many += ", " + std::to_string(i);
  const std::string thousand = "batch = " + many + "]\nheads = " + many + "]";
  const std::string more = "batch = " + many + ", 1001]";
  const std::vector<Broken> rows{
      {"schema = 1", "schema = \"1\"", "1: schema: found '1', expected the whole number 1"},
      {"cluster = \"testbed-b\"\n", "", "1: cluster: found no such key, expected a name"},
      {"\"exact\"", "\"round\"", "5: capacity_rounding: unknown 'round', expected one of: ragged, exact"},
      {"batch = [1, 2]", "batch = []", "7: layers.batch: found a list of 0, expected a list with at least one value"},
      {"batch = [1, 2]", "batch = [1, 1]", "7: layers.batch: found 1, expected each candidate once"},
      {"batch = [1, 2]", "batch = [1, 0]", "7: layers.batch: found 0, expected a whole number >= 1"},
      {"batch = [1, 2]", "batch = [1, 2.0]", "7: layers.batch: found 2.0, expected a whole number >= 1"},
      {"batch = [1, 2]", "batches = [1, 2]", "7: layers.batches: found unknown key 'batches', expected one of: batch"},
      {"batch = [1, 2]", more, "7: layers.batch: found a list of 1001, expected at most 1000"},
      {"batch = [1, 2]\nheads = 8", thousand, "6: layers: found more than 1000000 layers, expected fewer"},
      {"heads = 8\n", "", "6: layers.heads: found no such key, expected it in this table"},
      {"seq = [256]", "seq = [9999999999]", "9: layers.seq: found 9999999999, expected a whole number >= 1 and <= "},
      {"hidden_scale = [2, 3]", "hidden_scale = [2, 2.0001]",
       "11: layers.hidden_scale: found 2.0001 of model_dim 1024"},
      {"hidden_scale = [2, 3]\n", "", "6: layers.hidden_scale: found neither hidden nor hidden_scale, expected one"},
      {"hidden_scale = [2, 3]", "hidden_scale = 2\nhidden = 64", "11: layers.hidden_scale: found both hidden and"},
      {"\"*\"", "\"all\"", "12: layers.capacity_factor: found 'all', expected a number > 0 or '*'"},
      {"\"*\"", "-1", "12: layers.capacity_factor: found -1, expected a number > 0"},
      {"\"mixtral\"", "\"gpt\"", "13: layers.ffn: found 'gpt', expected each candidate once"},
      {"\"mixtral\"", "\"swiglu\"", "13: layers.ffn: unknown 'swiglu', expected one of: gpt, mixtral"},
      {"\"nodes\"", "\"ranks\"", "15: layers.experts: found 'ranks', expected 'nodes' or a whole number"},
      {"[layers]", "[layer]", "6: layer: found unknown key 'layer', expected one of: "},
  };
  expect_each_refused({"grid", kGrid, [](const std::string& path) { read_grid(path); }}, rows);
}

constexpr std::string_view kLayer = R"(schema = 1
name = "l"
batch = 4
capacity_factor = 1.2
ffn = "gpt"
gate = "gshard"
[parallel]
mp = 2
)";

TEST(MalformedFiles, Layers) {
  const std::vector<Broken> rows{
      {"batch = 4", "batch = 0", "3: batch: found 0, expected a whole number >= 1"},
      {"batch = 4", "batch = [4]", "3: batch: found a list of 1, expected a whole number"},
      {"batch = 4", "Batch = 4", "3: Batch: found unknown key 'Batch', expected one of: batch, seq"},
      {"capacity_factor = 1.2", "capacity_factor = 0", "4: capacity_factor: found 0, expected a number > 0"},
      {"capacity_factor = 1.2", "capacity_factor = \"*\"", "4: capacity_factor: found '*', expected a number > 0 or"},
      {"\"gpt\"", "\"dense\"", "5: ffn: unknown 'dense', expected one of: gpt, mixtral"},
      {"\"gshard\"", "\"g shard\"", "6: gate: found 'g shard', expected a name of letters"},
      {"mp = 2", "mp = -2", "8: parallel.mp: found -2, expected a whole number >= 1"},
      {"mp = 2", "tp = 2", "8: parallel.tp: found unknown key 'tp', expected one of: dp, cp, cp_exchange, mp"},
      {"[parallel]", "[parallel", "7: found bad syntax ("},
  };
  expect_each_refused({"layer", kLayer, [](const std::string& path) { read_layer(path); }}, rows);
}

constexpr std::string_view kRecords =
    R"({"kind":"run","schema":1,"started":"t","argv":["a"],"config_digest":"d","git":{},"compiler":"c",)"
    R"("libraries":{},"machine":{"cores":2},"environment":{}})"
    "\n"
    R"({"kind":"case","key":"k","status":"ok","parameters":{"bytes":8},"schedule":"fsmoe","degree_forward":2,)"
    R"("degree_backward":1,"backend":"local","emulated":true,"dilation":1.0,"samples":{"t_s":[[0.5]]},)"
    R"("summary":{},"prediction":{},"bound_s":0.25})"
    "\n"
    R"({"kind":"end","ended":"t"})"
    "\n";

TEST(MalformedFiles, Records) {
  const std::vector<Broken> rows{
      {"{\"kind\":\"run\",", "{", "1: kind: found no such key, expected a text"},
      {"\"kind\":\"run\"", "\"kind\":\"walk\"",
       "1: kind: found 'walk', expected one of: run, case, cases, resume, end"},
      {"\"kind\":\"run\"", "\"kind\":7", "1: kind: found 7, expected a text"},
      {"\"schema\":1", "\"schema\":3", "1: schema: found 3, expected a whole number from 1 to 2"},
      {"\"schema\":1", "\"schema\":1e300", "1: schema: found 1e+300, expected a whole number"},
      {"[\"a\"]", "[1]", "1: argv: found 1, expected a list of texts"},
      {"\"git\":{}", "\"git\":[]", "1: git: found a list of 0, expected an object"},
      {"\"cores\":2", "\"cores\":{}", "1: cores: found an object, expected a number, a text, true or false"},
      {"{\"kind\":\"case\"", "\"kind\":\"case\"", "2: record: byte 7: found bad syntax at '\"kind\":', expected"},
      {"{\"kind\":\"case\"", "[]", "2: record: byte 3: found bad syntax at '[],', expected one JSON"},
      {"\"key\":\"k\",", "", "2: key: found no such key, expected a text"},
      {"\"status\":\"ok\"", "\"status\":\"fine\"", "2: status: found 'fine', expected one of: ok, wrong, invalid"},
      {"\"degree_forward\":2", "\"degree_forward\":-2", "2: degree_forward: found -2, expected a whole number from 0"},
      {"\"degree_backward\":1", "\"degree_backward\":18446744073709551615",
       "2: degree_backward: found 18446744073709551615"},
      {"\"emulated\":true", "\"emulated\":1", "2: emulated: found 1, expected true or false"},
      {"[[0.5]]", "[0.5]", "2: t_s: found 0.5, expected a list (iterations) of lists (ranks) of numbers"},
      {"[[0.5]]", "[[\"x\"]]", "2: t_s: found 'x', expected a list (iterations) of lists (ranks) of numbers"},
      {"\"bound_s\":0.25", "\"bound_s\":\"x\"", "2: bound_s: found 'x', expected a number"},
      {"\"bytes\":8", "\"bytes\":[8]", "2: bytes: found a list of 1, expected a number, a text, true or false"},
      {"{\"kind\":\"end\"", "\n{\"kind\":\"end\"", "3: record: found '', expected one JSON object"},
      {"{\"kind\":\"end\",", "{\"kind\":\"end\",\"ended\":\"t\"}\n{\"kind\":\"end\",", "4: kind: found "},
      {"{\"kind\":\"end\"", "{\"kind\":\"case\"", "3: key: found no such key, expected a text"},
  };
  expect_each_refused({"records", kRecords, [](const std::string& path) { read_runs(path); }}, rows);
}

}  // namespace
}  // namespace moe
