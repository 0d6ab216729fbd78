#include "plait/model/folder_files.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(GroupedNames, SaysAllOfThem) {
  EXPECT_EQ(grouped_names({}), "");
  EXPECT_EQ(grouped_names({"a", "b.c"}), "a, b.c");
  EXPECT_EQ(grouped_names({"h.0.w", "h.1.w", "h.10.w", "h.2.w", "x"}), "h.0-2,10.w, x");
  EXPECT_EQ(grouped_names({"h.0.w", "h.0.b", "h.1.w", "h.3.b"}), "h.0-1.w, h.0,3.b");
  EXPECT_EQ(grouped_names({"h.7", "h.8", "8"}), "h.7-8, 8");
  EXPECT_EQ(grouped_names({"h.1x.w", "h.99999999999999999999.w", "h.-1.w"}),
            "h.1x.w, h.99999999999999999999.w, h.-1.w");
  EXPECT_EQ(grouped_names({"a", "b.0", "b.1", "c", "d"}, 2), "a, b.0-1 and 2 more");
}

TEST(ReplacedByModel, ParametersAndConfiguration) {
  for (const char* name : {"config.json", "model.plait", "model.safetensors",
                           "model-00001-of-00002.safetensors", "model.safetensors.index.json"})
    EXPECT_TRUE(replaced_by_model(name)) << name;
  for (const char* name : {"README.md", "tokenizer.json", "pytorch_model.bin", "checkpoints"})
    EXPECT_FALSE(replaced_by_model(name)) << name;
}

}  // namespace
}  // namespace plait
