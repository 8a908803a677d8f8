import { sized } from "../sizes.ts";
import { describeUrgent } from "../suites/urgent-suite.ts";

describeUrgent("the state in a folder", 20_000, sized(100, 30));
