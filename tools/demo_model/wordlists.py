"""Real words and names that training uses in addition to the small lists of `words`. None of them is held out."""

from __future__ import annotations

COMMON_WORDS = tuple(
    """
abbey able absent absorb absurd accept achieve acid acorn acquire acrobat active actor address admire admit adopt adult
advice afford agile agree aisle alarm album alert alien alley allow almond alone alphabet amazing ambulance amuse
anchovy ancient angel angle angry ankle announce annoy answer antelope antenna anxious appear applaud apricot apron
aquarium arch archer argument armchair armour army arrange arrest arrive arrow artist ash ashes asphalt assist athlete
atlas atom attach attack attempt auction audience aunt author autumn avenue average avocado avoid awake awful awkward
axe axle baboon baby bacon badge baggage bagpipe balance balcony bald ballad ballet balloon bamboo banana bandage banjo
banner bare barley barn barrel barrier basic basil basin bat bath battery battle bazaar beach bead beak beam beard beast
beaver become beetle beggar begin behave belief belly belong belt bend berry betray beverage bib bird birth biscuit
bishop bison bitter blade bland blank blaze bleak blender blind blink blizzard block blond bloom blossom blouse
blueberry bluff blunt blush boar boast bogus boiler bold bolt bonfire bonnet booklet boot border boring borrow bossy
bother boulder bounce bouquet bow bowl boxer bracelet brain bramble brandy brass brave breath breathe breed breeze
brewery brick bride brief brisk brittle broad broccoli broken broom broth brother brush bubble bucket buckle budget
buffalo buffet bugle build bulb bull bullet bumblebee bumper bumpy bundle bunny buoy burden burger burrow bury bus busy
butcher butler butter butterfly button buzzer byte cabbage cabin cable cactus cage calendar calf calm camera campfire
canal canary candy canoe canvas canyon capital captain caramel caravan carbon cardigan careful careless cargo carnival
carol carpet carriage carrot carry cart cartoon carve cashew cashier casket cassette catalogue catapult catch cathedral
cattle cauldron cave caviar cedar ceiling celebrate celery cello cement centaur century cereal certain chain chalk
chamber champion channel chapel chapter chariot charm charming chart chase chasm chatter cheap cheek cheerful cheetah
chef cherry chestnut chew chick chief chimney chin chisel choice choir choose chord chorus chronicle chubby chuckle
church chutney cigar cinema cinnamon circle circus citizen citrus civic civil clam clap clarinet classic claw clay
clever cliff cling clinic cloak cloth clover clown club clue clumsy clutch coal coarse cobalt cobbler cobra cobweb
coconut cocoon coffin collapse collar collect college colony comb combine comedy comet comfort comic comma committee
common company compare compete complain complex conceal condor cone confess conflict confuse connect consider contain
convince cookie cooler copy cord cork cormorant corner cornflake correct corridor cosmos costume cosy cottage cotton
couch cough council counter country couple courage cousin cowboy coyote crab cracker cradle crafty crane crater crawl
crayon crazy create creek creep crest crew crib cricket crisp crocodile crocus crooked crowd cruel crumb crunchy crush
crust crutch crypt crystal cube cuckoo cucumber cuff cupcake curb curious curl current curtain curve cushion custard
custom cute cutlery cyclone cylinder cymbal cypress dagger dairy daisy damage damp damsel danger daring daughter dawn
daylight dazzle debate debt decade decent decide decision deck deep defend degree delicate delight deliver delta demon
denim dense deny depart deputy describe desert design dessert destroy detail develop device devil dew diagram dial
diamond diary dice diesel different digit dignity dinner diploma dirty disaster disc discover disguise dish dissolve
distance distant ditch diver divide divine dizzy dock doll dollar dolly dome domino double dough doughnut dove drag
dragon dragonfly drain drama drawbridge dread drift drill drizzle drone droplet drought drown drowsy druid dry dryer
duchess duel duet duke dull dune dungeon dusk dusty duty dwarf dye dynamo eager ear early earn earring earth easel easy
echo eclipse editor eel effect effort elbow elder elegant elevator elf elk ember emblem embrace emerald emperor empire
employ empty enamel energy engine enigma enjoy enormous enter entire envelope envoy equal equator erase eraser errand
error escape essay estate ether event evidence exact exam examine example excellent exchange excuse exhibit exile exit
exotic expand expert explain explode explore express extra eyebrow eyelash fable fabric factory failure faint fairy
faith fame familiar family famine famous fan fancy fang fashion fatal father faucet fault favour feast feather fee
feeble fence fern ferret ferry fertile festival fetch fever fiddle fierce fig figure file filthy final finger finish fir
fist flame flamingo flannel flask flatter flavour flea flee fleece flesh fling flint float flock flood flour fluffy
flute foam fog folder foliage folk follow folly font foolish forbid foreign forgive fork formal fort fortress fortune
fossil fountain fragile fragment frail frame freckle freedom freezer freight frequent fresh fringe frost frozen fruit
fudge fuel fulfil funnel funny fur furnace furry fuse fussy fuzz gadget galaxy gallery gallon gallop garbage gargoyle
garlic garment garnet gas gasket gather gauge gazebo gazelle gem general genius gentle genuine ghastly ghost giant gift
gifted giggle glad glade gland glaze gleaming glide glimpse glitter globe gloom glory glossy glow glue gnat gnaw gnome
gnu goal goblet goblin goggles gondola gong goodness gopher gorge gorilla gospel gossip gourd gown grab graffiti grain
grammar granite grape grateful gravel gravity gravy grease greedy griffin grill grim grip grocery groove grotto grove
growth grumble gryphon guava guess guide guilt guilty gulf gull gully gum gust gutter gymnast gypsum habit haddock hail
hair hallway halo halt hamlet hammock handcuff handle handsome handy hangar happy harbour hare harmless harmony harness
harp harpoon harsh harvest hatch hatchet haunt hawk hay hazard hazel headache healthy hearth heather heavy hectic hedge
heel height helmet hemlock hen herald herb herd hermit hero heron herring hesitate hiccup hickory hidden hinge hippo
hive hoarse hollow holly honey hood hoof hook hope horizon hornet horror hospital hostile hotel hound hover howl hub
huddle hug huge hull human humble humour hunger hungry hurdle hurry husband husk husky hut hyacinth hydrant hyena hymn
hyphen ibex icicle icon icy idea ideal idle idol igloo ignore iguana image imagine immense improve impulse inch include
income infant inform inhale ink inkwell inn innocent inquire insect insist inspect instinct intellect intense invent
invite invoice involve iris isle itch item ivory jackal jacket jagged jaguar jail jam jar jasmine jaw jazz jealous jeans
jelly jersey jester jet jewel jigsaw jockey joke jolly journal journey jubilee judgment juggler juicy jumper junction
jungle junior jury justice jute kayak keen kennel kernel kerosene ketchup kidney kiln kilt kimono kinship kiosk kitten
kiwi knapsack knave knee kneel knife knight knob knock knoll knot knuckle koala krill label labour labyrinth lace
lacquer lad ladle lagoon lair lake lamb lance landlord lane language lap lapel larch lark larva lasso latch lather
laughter launch laurel lava lawn layer lazy leader league leak leather lecture ledge leek legend lemming lemur lend
length lengthy lens lentil leopard lesson lettuce level lever liberty lichen lid lilac limb limp limpet linen linger lip
liquid liquor list listen litter little lively liver lizard llama loaf loan lobby lobster local loft logic loiter lonely
loom loop loose lorry lotion lotus loud lounge lovely loyal luck luggage lullaby lumber lunch lung lupin lure lush lute
luxury lynx lyre lyric macaroni machine magazine magnet magpie mahogany maiden majesty mallet mammal mammoth manage
manager mandolin mane manner manor mansion mantle manual maple marathon margin marigold market marsh martyr marvel
mascot mask mast master match matrix mattress mature mayor maze measure medal meek mellow melody melon melt member
memory menace mention menu mercury merit mermaid merry message metal meteor method metro midnight mighty mildew mile
mill million mimic mineral mingle minnow minor minute miracle mirage mischief missile mission mist mistake mitten
mixture moat model modern modest mohair moist mole moment monarch money mongoose monk monsoon monster moose moral morsel
mortar mosaic mosquito moss moth motive motor mound mousse movement muddle muddy muffin mug mulberry mule mumble mummy
muscle museum music musket mussel mustache mustard mute mutual myrtle mystery myth nail nap napkin narrow nasty nation
nature naughty nautical navel neat nebula neck nectar needle neglect nephew nerve nervous nest net nettle neutral nibble
nickel niece nightmare nimble nitrogen noble noise noisy nomad noon normal nose nostril notch notice notify notion novel
nozzle nuclear nudge nugget numb nun nursery nut nutmeg nylon nymph oak oar oasis oath obey object oboe observe obstacle
obtain obvious occasion occur odd odour offend offer officer oil ointment old omelette omen onion onyx opal opening
opinion opossum orbit orchard orchid ordeal ordinary organ origin ornate ostrich outcome outfit outlaw outlet oval oven
owner oxen oxygen oyster ozone pacific paddle paddock padlock palace palette palm pamphlet pancake panel panic pansy
panther papaya paper paprika parade paradise paradox parasol parcel parent parish parsley parsnip partner party
passenger pasture patch patient patio patrol patron pattern pauper pause pavement paw pawn peace peach peacock peak
peanut pear pearl peasant pebble pecan pedal peg pelican pelvis penalty pendant pendulum peninsula penny people pepper
peppermint perch perfect perfume peril period permit person persuade petal petrol petticoat petty petunia pewter phantom
pharaoh pharmacy phase pheasant phoenix phrase physics picnic picture pier pigeon pigment pigsty pill pillar pimple
pinch pine pineapple pint pioneer pipe piranha pirate piston pitcher pixel pixie plain planet plank plant plaque plaster
plastic platform platinum platter plaza pleasant pleasure pledge plinth plot plough pluck plum plumage plump plunge
plush plywood pocket poem poet poison poker polar pole police polish polite polka pollen pond ponder pony poodle pool
poor poplar poppy popular porcelain porch portrait possess possum postcard poster postman pouch poultry pour powder
power practise prairie praise prawn prayer precious predict prefer prepare present pretty prevent price prickly pride
priest prime prince prism prison privilege prize problem proceed produce profit promise proof proper prophet protect
protein proud proverb provide prune psalm psyche public publish pudding puddle puffin pulley pulp pulse puma pumice pump
pumpkin punch pupil puppet puppy pure purse pursue puzzle pyjamas pylon pyramid python quail quaint quake quality
quarrel quarry quart quarter quartz quay queasy queen quench query quest question queue quiche quick quiet quill quilt
quince quiver quiz quota quote rabble raccoon racket radar radio radish raffle raft rag raid rail rainbow raisin rake
ramp ranch ransom rapid rare raspberry rat rattle raven ravine raw razor ready realise rear reason rebel receipt receive
recent recess recipe record recruit recycle reef referee reflect refuge refuse regatta regime region rejoice relax
release relic rely remain remedy remove rent repair replace reply reptile request rescue resin resist respect result
retina retire reveal revenge reward rhinoceros rhombus rhubarb rhyme rhythm rib ribbon riddle ridge rifle rigging rigid
rind rinse riot ripe ripple risk rite ritual rival rivet roam robe robin robust rodent rogue roller romance rook rooster
rosemary rotor rotten rouge rough round routine rowdy royal rub rubber rubbish rucksack rudder rude rug rugby ruin
rumble rumour runway rural rush rust rusty rye sabre sack sacred sad saddle safari safe saffron sage saint saliva salon
salute sample sandal sandwich sapling sapphire sardine satchel satin satire sauce saucepan saucer sausage savage
saxophone scaffold scale scalp scandal scar scarecrow scarf scary scatter sceptre schedule scheme scholar school
schooner science scissors scold scooter score scorpion scout scrap scratch scream screen screw scribble script scroll
scrub scruffy sculptor scythe seagull seal search season seaweed second sector secure seed seesaw segment seize selfish
senate senior sense sentence sentry separate sequel sergeant serious serpent servant session settler severe shabby shack
shade shadow shaft shaggy shallow shampoo shamrock shawl sheet shelf shell shelter shepherd sheriff shield shin shiny
shirt shiver shock shore shoulder shout shovel shower shrew shriek shrimp shrink shrub shrug shuffle shutter shy sick
sickle sieve sigh signal silence silent sill silly silt simple sincere siren skate sketch skewer skill skinny skirt
skull skunk slate sled sleek sleet sleeve sleigh slender slice slight slim slimy slipper slippery slope sloppy sloth
slug small smart smell smith smog smooth smudge snack snail snatch sneak sneeze sniff snore snout snowball snowflake
snug soap sober soccer sock socket soda sofa soil solar sole solemn solid solstice solution sonata soothe sore sorrow
soul sour source souvenir soya spade spaghetti spaniel spanner spare spark sparrow sparse spatula special spectrum
speedy sphere sphinx spice spicy spike spill spinach spiral spirit splash splendid splinter sponge spool spout spray
sprout spruce spur squad square squash squeaky squeeze squid squire squirm stable stack stadium stag stagger stain stair
stake stale stall stallion stamp staple stare starfish statue status steady steal stealth steam steel steep stem stencil
steward stick sticky stiff stigma stirrup stitch stomach stool stopper stork story stove strait strange strap straw
stream street strength stretch strict stripe stroke structure struggle stubborn stucco student studio stumble sturdy
style subject subtle subway succeed success sudden suffer sugar suggest suit sulphur sultan summit sunny sunset supple
supply support surface surgeon surprise suspect swallow swamp swan swarm swear sweater sweep swift switch sword sycamore
syllable symbol symphony symptom syringe syrup system tablet tabloid tackle tactic tadpole talent tallow tambourine tame
tangent tangle tangled tango tank tapestry tar tarantula target tariff tart task tassel taste tasty tattoo tavern taxi
teapot tear tease teaspoon tedious teeter telegraph temper tempest temple tender tendon tense tent terminal terrace
terrier terrific terror textile texture theatre theft theme theory thick thief thigh thimble thin thirst thistle thorn
thorough thread threat thrill thrive throat throne thrush thumb thunder thyme tiara ticket tickle tide tidy tight tile
timber timid tin tinsel tiny tired tissue title toad toaster tobacco toddler toenail toffee toilet token tomato tomb
tongs tongue tonic topaz topic torch tornado torpedo tortoise toss totem toucan tough towel toxic toy tractor traffic
tragedy trail traitor tram transform trapeze trash travel traveller tray treasure treaty tremble trench trestle tribe
tribute trick tricky trigger trinket trio triumph trolley trombone trophy tropic tropical trouble trough trousers trout
trowel truffle trumpet trunk tub tuba tube tugboat tulip tumble tuna tundra tunic tunnel turban turbine turkey turmoil
turnip turret tusk tutor tuxedo tweed tweezers twig twilight twin twist typhoon typical tyrant tyre ugly ulcer uncle
understand upkeep upper uproar upset urban urchin urgent urn usher vacant vaccine vacuum vague vain valid valley
valuable value valve vampire van vanilla vanish vapour vase vast vault veal vehicle veil vein velvet velvety vendor
venom vent veranda verb verdict verse vessel vest veteran vicar vicious victim video view villa villain vine vinegar
vineyard violent viper virtue virus visit visitor vivid vixen vodka volcano volley voltage volume voucher vowel voyage
vulture waffle wage wagon waist walnut walrus waltz wand wander warden warn warrior warship wart wasp waste wealth
wealthy weapon weary weasel weave weaver web wedding wedge weed weep weight weird whine whip whirl whisker whisky
whisper whistle whittle wick wicked widow wiggle wigwam willow winch wisdom wise witch wither witness witty wizard
wobbly wombat wonder wonderful wooden woodpecker wool workshop worm worry worthy wound wrap wrath wreath wreck wren
wrench wrestler wriggle wrinkle wrist write writing wrong xylem xylophone yacht yak yard yarn yawn yearn yeast yell yeti
yew yodel yogurt yoke yolk young youth zany zeal zealot zenith zephyr zero zigzag zinc zip zipper zodiac zombie zone zoo
zoology zoom
""".split()
)

FIRST_NAMES = tuple(
    """
Aaliyah Aaron Abdul Abigail Abraham Adele Adeline Adrian Agatha Agnes Aiko Ailsa Akira Alasdair Albert Alejandra Alfonso
Alfred Ali Alina Alistair Alma Alphonse Amadou Amina Amir Anastasia Anders Andreas Angela Angus Anita Annika Anthony
Antonia Arabella Archie Ariadne Arjun Arnold Arthur Arturo Asha Ashley Audrey August Aurelia Axel Ayesha Aylin Barbara
Barnaby Bartosz Basil Beatrice Becky Benedict Bernard Bertha Beth Bilal Birgit Blanche Bogdan Boris Brenda Bridget
Bronwyn Bruce Bryce Caitlin Callum Calvin Candice Carmen Caroline Casper Cassandra Catalina Cecilia Cedric Celeste
Chiara Chidi Chiyo Christine Christopher Ciara Clarence Claudia Clement Clifford Clint Colette Connor Constance Cordelia
Cornelius Cynthia Cyrus Dagmar Dahlia Damian Daphne Darius Deborah Deepak Deirdre Delia Denise Derek Desmond Diana
Dieter Dimitra Dinesh Dominic Doreen Douglas Duncan Dwight Dylan Edgar Edith Edmund Eduardo Edwin Eileen Ekaterina
Eleanor Elias Elijah Elizabeth Elke Elliot Elsa Emil Emilia Emmanuel Enrique Ernest Esme Esperanza Esther Eugene Eunice
Evelyn Ewan Fabian Faith Farid Faye Felicity Ferdinand Fernando Fiona Florian Frances Francesca Frank Franziska
Frederick Freya Frida Gabriel Gareth Gavin Geoffrey Georgina Gertrude Gianni Gideon Gilbert Giovanni Gisela Gloria
Godfrey Gordon Graham Gregory Gretchen Guillermo Gunnar Gwendolyn Habib Hamza Harold Haruki Harvey Hazel Hector Heidi
Heinrich Henrietta Herbert Hilary Hilda Holly Horace Howard Hubert Humphrey Ibrahim Ida Ignacio Igor Imogen Imran
Ingeborg Irene Iris Isaac Isaiah Ismail Jacob Jacqueline Jamal Janet Janine Jared Jasmine Javier Jeffrey Jennifer Jeremy
Jessica Jia Joachim Joan Joaquin Jocelyn Johanna Jonathan Jorge Joseph Joshua Joyce Juan Judith Julian Jurgen Justin
Kaito Kamala Karl Kasper Katarzyna Keiko Keith Kenneth Khadija Kieran Kirsten Klaus Krishna Krzysztof Kurt Lakshmi Lars
Laurence Leonie Leopold Leroy Lewis Lorenzo Lorraine Louis Louise Lucille Ludwig Lydia Mabel Madeleine Magnus Mahmoud
Malcolm Manuel Marcus Marguerite Marie Marlene Martha Martin Maureen Maurice Maxine Mehmet Melanie Melissa Mercedes
Meredith Mikhail Mildred Milo Miriam Mohammed Moira Monica Morgan Muhammad Muriel Myrtle Nadine Nancy Naomi Natasha
Nathaniel Neville Ngozi Niamh Nigel Nikita Noemi Norbert Norman Odette Olaf Oluwaseun Ophelia Orlando Osman Oswald Otto
Pablo Pamela Pascal Patricia Patrick Pauline Pavel Percy Philippa Phoebe Phyllis Prudence Quincy Rajesh Ralph Ramona
Randolph Rania Raquel Raymond Rebecca Reginald Renata Rhiannon Rhys Ricardo Richard Roberta Roderick Roger Roland Ronald
Rosalind Rosemary Rowan Roxanne Rudolf Rupert Russell Ryan Sabine Sakura Salma Samantha Sandra Sanjay Saskia Scarlett
Sergei Shanice Sheila Siegfried Sigrid Silvia Siobhan Solomon Sonja Soren Stanley Stella Stephanie Sunita Suresh Sybil
Sylvester Tabitha Takeshi Tamara Tatiana Terence Thaddeus Thea Thelma Theodora Timothy Tobias Trevor Tristan Tyler
Umberto Ursula Valerie Vanessa Vernon Vikram Vincent Viola Vivian Vladimir Wanda Warren Wilfred Wilhelmina Winifred
Winston Wolfgang Xavier Ximena Yasmin Yolanda Yvonne Zachary Zahra Zbigniew Zelda Zsofia
""".split()
)

SURNAMES = tuple(
    """
Abbott Adeyemi Ahmad Anderson Archer Atkinson Bailey Baker Banerjee Barnes Becker Bennett Bianchi Blackwood Bradley
Brooks Burgess Campbell Castillo Chowdhury Christensen Clark Collins Cooper Crawford Cruz Davies Delgado Dubois Dvorak
Eriksson Evans Faulkner Ferguson Fernandez Fischer Fitzgerald Fletcher Flores Foster Fraser Fujimoto Gallagher Garcia
Gibson Gonzalez Griffiths Gupta Haddad Hamilton Hansen Harris Hartmann Hayes Hernandez Hoffmann Hughes Hussain
Ibrahimovic Jackson Jensen Jimenez Johansson Johnson Jones Kapoor Kaufmann Keller Kennedy Khan Kimura Knight Kobayashi
Kowalski Kruger Larsen Lawrence Lindqvist Lopez Macdonald Marshall Martinez Mbeki Mendoza Meyer Miller Mitchell Moreau
Morrison Murphy Nakamura Navarro Nguyen Nielsen Novak Nowak Okafor Okonkwo Olsen Ortega Osborne Papadakis Parker Patel
Petrov Phillips Pritchard Quigley Ramirez Rasmussen Reynolds Richter Robinson Rodriguez Rossi Rousseau Salazar Sanchez
Schmidt Schneider Schwarz Sharma Shaw Silva Singh Smith Stewart Sullivan Suzuki Takahashi Tanaka Taylor Thompson Torres
Tremblay Turner Vasquez Vogel Volkov Wagner Walker Watson Weber Whitaker Wilkinson Williams Wojcik Wright Yamamoto
Yilmaz Zhang Zhou Zimmermann
""".split()
)

CITIES = tuple(
    word.strip()
    for word in """
Aachen, Aarhus, Aberdeen, Abuja, Adelaide, Albany, Aleppo, Alexandria, Algiers, Almaty, Amman, Amsterdam, Anchorage,
Antalya, Antwerp, Arequipa, Ashgabat, Asuncion, Atlanta, Auckland, Augsburg, Austin, Avignon, Baghdad, Baku, Baltimore,
Bamako, Bangalore, Bangkok, Bath, Beijing, Beirut, Belfast, Belgrade, Bern, Bilbao, Birmingham, Bologna, Bordeaux,
Brasilia, Bratislava, Bremen, Brighton, Brisbane, Bruges, Brussels, Bucharest, Buffalo, Bursa, Cadiz, Calgary,
Cambridge, Canberra, Caracas, Cardiff, Cartagena, Casablanca, Charleston, Chennai, Chester, Chisinau, Christchurch,
Cincinnati, Cleveland, Cologne, Colombo, Columbus, Cordoba, Coventry, Cusco, Dakar, Damascus, Darwin, Derby, Detroit,
Dhaka, Dortmund, Dover, Durban, Durham, Dushanbe, Dusseldorf, Edmonton, Eindhoven, Erfurt, Essen, Exeter, Fez,
Frankfurt, Freiburg, Fukuoka, Galway, Gdansk, Genoa, Ghent, Glasgow, Gothenburg, Granada, Grenoble, Groningen,
Guadalajara, Guangzhou, Haifa, Halifax, Hannover, Harare, Havana, Heidelberg, Hiroshima, Hobart, Houston, Hyderabad,
Indianapolis, Innsbruck, Inverness, Ipswich, Irkutsk, Izmir, Jaipur, Jakarta, Jena, Jerusalem, Johannesburg, Kabul,
Kampala, Karachi, Kassel, Kathmandu, Kazan, Khartoum, Kiel, Kigali, Kingston, Kinshasa, Kolkata, Konstanz, Kuala Lumpur,
Lagos, Lahore, Lausanne, Leicester, Lille, Linz, Liverpool, Ljubljana, Lodz, Luanda, Lucerne, Lusaka, Luxembourg, Lviv,
Madison, Malaga, Malmo, Manchester, Manila, Mannheim, Maputo, Marrakesh, Marseille, Medellin, Memphis, Miami, Milwaukee,
Minneapolis, Mombasa, Montevideo, Moscow, Mumbai, Nagoya, Nantes, Nashville, Newcastle, Nice, Norwich, Nottingham,
Nuremberg, Odessa, Orlando, Osaka, Ottawa, Oxford, Palermo, Panama City, Perth, Philadelphia, Phoenix, Pisa, Pittsburgh,
Plymouth, Portland, Potsdam, Poznan, Pretoria, Quebec, Quito, Rabat, Reykjavik, Rostock, Rotterdam, Sacramento,
Salzburg, Samarkand, Sapporo, Sarajevo, Shanghai, Sheffield, Singapore, Skopje, Stuttgart, Swansea, Szczecin, Taipei,
Tallinn, Tampere, Tashkent, Tbilisi, Toledo, Toulouse, Trieste, Trondheim, Tucson, Tunis, Turin, Uppsala, Utrecht,
Vancouver, Venice, Verona, Vilnius, Warwick, Wellington, Winnipeg, Wolfsburg, Worcester, Wroclaw, Wurzburg, Xian,
Yangon, Yerevan, Yokohama, Zagreb
""".split(",")
)
